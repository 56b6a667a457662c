"""Replace this process with the program given as arguments, and make that program end when its parent process ends.

Run as a file (`python -I -S launch.py PARENT_PID PROGRAM ...`) so that it imports almost nothing. On Linux the kernel
sends SIGKILL when the parent ends, however it ends. Other systems have no such call: there only the parent cleans up.
"""

import ctypes
import os
import signal
import sys

_SET_PARENT_DEATH_SIGNAL = 1  # PR_SET_PDEATHSIG of <sys/prctl.h>


def main() -> None:
    """Bind the lifetime of this process to its parent's, then execute the program."""
    parent_pid, *command = sys.argv[1:]
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_SET_PARENT_DEATH_SIGNAL, int(signal.SIGKILL))
    if os.getppid() != int(parent_pid):  # the parent ended before the call
        sys.exit(1)
    os.execv(command[0], command)  # noqa: S606 - no shell is meant


if __name__ == "__main__":
    main()
