"""`python -m shop_lab.incidents.watcher FOLDER`: undo what expires, and all once the shop of the folder has ended."""

import sys
import time
from contextlib import suppress
from pathlib import Path

from chassis.errors import DomainError
from shop_cli.local.recording import FOLDER
from shop_cli.local.run_file import DATA, read_run
from shop_lab.incidents.injector import restore
from shop_lab.incidents.local import Local
from shop_lab.incidents.recording import remove

_PAUSE_SECONDS = 1.0


def main(folder: str) -> None:
    """Run until nothing is injected any more; what only a running store can undo is left for the next command.

    The recording of a command that was killed ends as well: while one records, its customers are injected.
    """
    target = Local(Path(folder))
    while target.records():
        runs = read_run(target.folder) is not None
        with suppress(DomainError):
            restore(target, everything=not runs)
        if not runs:
            return
        time.sleep(_PAUSE_SECONDS)
    remove(target.folder / DATA / FOLDER)


if __name__ == "__main__":
    main(sys.argv[1])
