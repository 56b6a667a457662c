import sys

# Don't print a traceback on Ctrl-C, even while other modules are still being imported.
sys.excepthook = lambda kind, *rest: None if kind is KeyboardInterrupt else sys.__excepthook__(kind, *rest)
