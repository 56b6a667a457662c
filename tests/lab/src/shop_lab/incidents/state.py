"""What was injected and how to undo it, saved before each act, so that any later command can restore the shop."""

import base64
import fcntl
import json
import os
import secrets
import socket
import time
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from shop_cli.local.run_file import DATA

Inverse = dict[str, Any]
"""How to undo one injection: its `mechanism`, and what that needs. JSON."""


@dataclass
class Record:
    """What one command has injected. It names no fault: investigators may read it.

    Attributes:
        token: a random name, of all that is injected.
        expires: when it must be undone, in seconds since 1970.
        owner: the process that has not finished with it, as `host:pid`; "" if it is to last.
    """

    token: str = field(default_factory=lambda: secrets.token_hex(4))
    expires: float = 0.0
    inverses: list[Inverse] = field(default_factory=list)
    owner: str = ""

    @property
    def seconds_left(self) -> float:
        return max(0.0, self.expires - time.time())

    def own(self) -> None:
        """Let this process be its owner."""
        self.owner = f"{socket.gethostname()}:{os.getpid()}"

    @property
    def abandoned(self) -> bool:
        """Whether its owner has died, on this machine."""
        host, _, pid = self.owner.rpartition(":")
        return host == socket.gethostname() and not Path(f"/proc/{pid}").exists()

    def dump(self) -> str:
        return base64.b64encode(zlib.compress(json.dumps(asdict(self)).encode())).decode()

    @classmethod
    def load(cls, text: str) -> "Record":
        return cls(**json.loads(zlib.decompress(base64.b64decode(text))))


def write_durably(path: Path, text: str, mode: int = 0o644) -> None:
    """Replace a file as a whole, on disk once this returns."""
    draft = path.with_suffix(".new")
    draft.touch(mode)
    with draft.open("w", encoding="utf-8") as file:
        file.write(f"{text}\n")
        file.flush()
        os.fsync(file.fileno())
    draft.replace(path)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


@dataclass(frozen=True)
class RecordFolder:
    """Records as files below the folder of a local shop, on disk once they are saved."""

    folder: Path

    @property
    def _lab(self) -> Path:
        return self.folder / DATA / "lab"

    def save(self, record: Record) -> None:
        self._lab.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_durably(self._lab / record.token, record.dump())

    def records(self) -> list[Record]:
        found = []
        for path in sorted(path for path in self._lab.glob("*") if not path.suffix):
            with suppress(FileNotFoundError):  # another process restores
                found.append(Record.load(path.read_text()))
        return found

    def forget(self, record: Record) -> None:
        (self._lab / record.token).unlink(missing_ok=True)

    @contextmanager
    def locked(self, name: str = "restoring", *, wait: bool = True) -> Iterator[None]:
        """Hold the lock of those that restore, or another one. Raise BlockingIOError rather than wait, if so told."""
        self._lab.mkdir(mode=0o700, parents=True, exist_ok=True)
        with (self._lab / f"{name}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
            yield
