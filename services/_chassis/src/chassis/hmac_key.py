"""A secret key for HMACs: given, or made once and kept beside the SQLite file whose rows need it."""

import os
import secrets
import sys
from pathlib import Path

from pydantic import SecretStr

from chassis import database

_KEY_BYTES = 32


def given_or_kept(given: SecretStr | None, database_url: str) -> bytes:
    """The key that HMAC_KEY gives, else the one kept beside a SQLite file; exits where replicas would each make one."""
    if given is not None:
        return given.get_secret_value().encode()
    path = database.sqlite_path(database_url)
    if path is None:
        sys.exit("HMAC_KEY: must be given with PostgreSQL, the same for all replicas")
    return kept_beside(path)


def kept_beside(file: Path) -> bytes:
    """Read the key of this database, making it first if there is none; only its owner can read the file.

    Processes that start at once get the same key.
    """
    path = file.with_suffix(".hmac-key")
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
