"""The `shop` command."""

import sys

# Set this before other imports, which take most of a command's start-up time, so that Ctrl-C prints no traceback.
sys.excepthook = lambda kind, *rest: None if kind is KeyboardInterrupt else sys.__excepthook__(kind, *rest)
