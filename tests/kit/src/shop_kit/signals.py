"""Signals to processes that tests start."""

import sys

_RESET_SIGINT = """
import os, signal, sys
signal.signal(signal.SIGINT, signal.SIG_DFL)
os.execv(sys.executable, [sys.executable, *sys.argv[1:]])
"""


def interruptible(*arguments: str) -> list[str]:
    """Return a command that runs Python with these arguments and does not ignore SIGINT.

    A suite in the background of a script ignores SIGINT, and its children inherit that.
    """
    return [sys.executable, "-c", _RESET_SIGINT, *arguments]
