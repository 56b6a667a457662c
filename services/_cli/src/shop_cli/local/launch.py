"""Becomes the program named by its arguments, and dies with the process that started it.

Run as a file (`python -I -S launch.py PARENT PROGRAM ...`), so that it imports next to nothing: Linux sends the
signal when the parent ends, however it ends; other systems have no such call, there the parent alone cleans up.
"""

import os
import signal
import sys

_SET_PARENT_DEATH_SIGNAL = 1  # PR_SET_PDEATHSIG of <sys/prctl.h>


def main() -> None:
    """Bind this process's life to its parent's, then run the program in its place."""
    parent, *command = sys.argv[1:]
    if sys.platform == "linux":
        import ctypes  # noqa: PLC0415 - other systems don't need it

        ctypes.CDLL(None).prctl(_SET_PARENT_DEATH_SIGNAL, int(signal.SIGKILL))
    if os.getppid() != int(parent):  # it died before the call
        sys.exit(1)
    os.execv(command[0], command)  # noqa: S606 - no shell is meant


if __name__ == "__main__":
    main()
