"""Secrets of local services: random values in a folder beside their data, as Kubernetes has Secrets beside volumes."""

import os
import secrets
from contextlib import suppress
from pathlib import Path
from tempfile import NamedTemporaryFile

_BYTES = 32


def load_or_create(path: Path) -> str:
    """Read the secret in a file; generate it first if there is none. Only its owner can read it.

    Safe for concurrent starts: all processes get the same secret.
    """
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        with NamedTemporaryFile("w", dir=path.parent) as draft:
            draft.write(secrets.token_hex(_BYTES))
            draft.flush()
            os.fsync(draft.fileno())
            with suppress(FileExistsError):  # another process created the secret first
                os.link(draft.name, path)
    return path.read_text(encoding="ascii")
