"""The `shop` command."""

import sys

# Set before all other imports, which take most of a command's start-up: Ctrl-C during them prints no traceback.
sys.excepthook = lambda kind, *rest: None if kind is KeyboardInterrupt else sys.__excepthook__(kind, *rest)
