"""Locks the folder in which a shop runs, and writes a file there from which commands read the shop's addresses."""

import fcntl
import json
import os
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import IO

from chassis.errors import FailedPrecondition
from shop_cli.local.workspace import OWN_COMMAND, root

DATA = ".shop"
_LOCK, _RUN = "lock", "run.json"
_TRIES, _RETRY_SECONDS = 5, 0.02


@dataclass(frozen=True)
class Run:
    """A running shop.

    Attributes:
        folder: where the services write their data, under `.shop/`.
        addresses: `host:port` by program name; for internal services, by `internal_name`.
        control_room, token: the control room's URL, and the token that it requires.
        tls_folder: the folder with the operator's certificate; "" without TLS.
        lab: whether the services expose failpoints.
    """

    pid: int
    folder: str
    addresses: dict[str, str] = field(default_factory=dict)
    control_room: str = ""
    token: str = field(default="", repr=False)
    tls_folder: str = ""
    lab: bool = False

    @property
    def control_room_port(self) -> int:
        return int(self.control_room.rpartition(":")[2])

    @property
    def link(self) -> str:
        return f"{self.control_room}/?token={self.token}"

    def url(self, name: str) -> str | None:
        """Return an HTTP service's URL; None if the shop has no service with this name."""
        address = self.addresses.get(name)
        return f"http://localhost:{address.rpartition(':')[2]}" if address else None


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Lock a folder, so that no other shop runs there until the context exits or this process ends.

    Create the folder if it is missing. Make its data, and all files that this process and its children create in the
    context, readable by this user only. Raise FailedPrecondition if a shop runs there or the folder is not writable.
    """
    data = folder / DATA
    with ExitStack() as stack:
        stack.callback(os.umask, os.umask(0o077))
        try:
            data.mkdir(parents=True, exist_ok=True)
            lock = stack.enter_context((data / _LOCK).open("a+"))
        except OSError as error:
            message = f"cannot write to {folder}: {error.strerror}; choose another with `--folder`"
            raise FailedPrecondition(message, reason="FOLDER_NOT_WRITABLE") from error
        if not _lock(lock, tries=_TRIES):
            found = read_run(folder)
            runs = f"a shop already runs in {folder}{f' (process {found.pid})' if found else ''}"
            message = f"{runs}: start a second one with `{OWN_COMMAND} up --folder OTHER --any-ports`"
            raise FailedPrecondition(message, reason="SHOP_RUNNING")
        for path in (data, *data.glob("*"), *data.glob("log/*")):
            path.chmod(0o700 if path.is_dir() else 0o600)
        yield


@contextmanager
def published(run: Run) -> Iterator[None]:
    """Write a shop's run file, and remove it when the context exits. This process must have `locked` the folder."""
    path = Path(run.folder) / DATA / _RUN
    draft = path.with_suffix(".new")
    draft.write_text(json.dumps(asdict(run)))
    draft.replace(path)
    try:
        yield
    finally:
        path.unlink(missing_ok=True)


def run_folder() -> Path | None:
    """Return the first folder with a run file that this user can see: the current one, a parent, or the workspace."""
    folders = (Path.cwd(), *Path.cwd().parents, root())
    return next((folder for folder in folders if os.path.exists(folder / DATA / _RUN)), None)  # noqa: PTH110


def find_run() -> Run | None:
    """Return the shop in `run_folder`; None if it was killed, because a command meant for it must not reach another."""
    folder = run_folder()
    return read_run(folder) if folder else None


def read_run(folder: Path) -> Run | None:
    """Return the shop that runs in a folder, or None. Ignore a run file that a killed shop left behind."""
    with suppress(OSError, ValueError, TypeError):
        run = Run(**json.loads((folder / DATA / _RUN).read_text()))
        with (folder / DATA / _LOCK).open("a+") as lock:
            return None if _lock(lock) else run
    return None


def _lock(file: IO[str], tries: int = 1) -> bool:
    """Lock a file until it is closed; return False if another process holds the lock.

    Retry, because commands that look for a running shop briefly hold the lock.
    """
    for number in range(tries):
        time.sleep(_RETRY_SECONDS if number else 0)
        with suppress(BlockingIOError):
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
    return False
