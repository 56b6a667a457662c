"""Secrets of local services: random values in a folder beside their data, as Kubernetes has Secrets beside volumes."""

import os
import secrets
from pathlib import Path

_BYTES = 32


def load_or_create(path: Path) -> str:
    """Read the secret in a file; generate it first if there is none. Only its owner can read it.

    Safe for concurrent starts: all processes get the same secret.
    """
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        _create(path)
    return path.read_text(encoding="ascii")


def _create(path: Path) -> None:
    """Write the secret to a temporary file, then link it into place, so that no reader sees half of it."""
    draft = path.with_name(f"{path.name}.{secrets.token_hex(8)}")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "w", encoding="ascii") as file:
            file.write(secrets.token_hex(_BYTES))
            file.flush()
            os.fsync(file.fileno())
        os.link(draft, path)
    except FileExistsError:
        pass  # another process created the secret first; all processes use that one
    finally:
        draft.unlink()
