"""Simulate."""

import sys

from shop_lab.simulation.cli import main

if __name__ == "__main__":
    sys.exit(main())
