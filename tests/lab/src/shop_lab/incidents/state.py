"""What was injected and how to undo it, saved before each act, so that any later command can restore the shop."""

import base64
import json
import os
import secrets
import socket
import time
import zlib
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

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

    @property
    def changed_objects(self) -> list[str]:
        """The URLs of Kubernetes objects that must be changed back, each once."""
        return list(dict.fromkeys(change["url"] for inverse in self.inverses for change in inverse.get("changes", ())))

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
