"""A secret key for HMACs, for the embedded default: made once and kept beside the SQLite file whose rows need it."""

import os
import secrets
from pathlib import Path

_KEY_BYTES = 32


def kept_beside(database: Path) -> bytes:
    """Read the key of this database, making it first if there is none; only its owner can read the file.

    Processes that start at once get the same key.
    """
    path = database.with_suffix(".hmac-key")
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        _make(path)
    return path.read_bytes()


def _make(path: Path) -> None:
    """Write the whole key under another name, then give it its own: nobody reads half a key."""
    draft = path.with_name(f"{path.name}.{secrets.token_hex(8)}")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(secrets.token_hex(_KEY_BYTES).encode())
            file.flush()
            os.fsync(file.fileno())
        os.link(draft, path)
    except FileExistsError:
        pass  # another process was first, and its key is as good
    finally:
        draft.unlink()
