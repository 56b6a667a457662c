import sys

# Don't print a traceback on Ctrl-C, even during the slow imports that follow.
sys.excepthook = lambda kind, *rest: None if kind is KeyboardInterrupt else sys.__excepthook__(kind, *rest)
