"""The `shop` command."""

import sys

# Before all other imports, which take most of a command's start: Ctrl-C during them is no error to explain.
sys.excepthook = lambda kind, *rest: None if kind is KeyboardInterrupt else sys.__excepthook__(kind, *rest)
