"""Makes the package `bench` importable: test folders are not installed."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1]))
