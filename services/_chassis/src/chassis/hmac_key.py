"""The secret key for HMACs: configured, or generated once and stored beside the SQLite file whose rows need it."""

import os
import secrets
from pathlib import Path

from chassis import database
from chassis.settings import HmacKeySettings

_KEY_BYTES = 32


def load_hmac_key(settings: HmacKeySettings) -> bytes:
    """Return the key that HMAC_KEY sets, or else the one stored beside the SQLite file.

    HmacKeySettings rejects PostgreSQL without HMAC_KEY: each replica would generate a key of its own.
    """
    if settings.hmac_key is not None:
        return settings.hmac_key.get_secret_value().encode()
    path = database.sqlite_path(settings.database_url.get_secret_value())
    if path is None:
        raise ValueError("HMAC_KEY is required with PostgreSQL")
    return load_or_create(path)


def load_or_create(database_file: Path) -> bytes:
    """Read the key stored beside a database file; generate it first if there is none. Only its owner can read it.

    Safe for concurrent starts: all processes get the same key.
    """
    path = database_file.with_suffix(".hmac-key")
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        _create(path)
    return path.read_bytes()


def _create(path: Path) -> None:
    """Write the key to a temporary file, then link it into place, so that no reader sees half a key."""
    draft = path.with_name(f"{path.name}.{secrets.token_hex(8)}")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(secrets.token_hex(_KEY_BYTES).encode())
            file.flush()
            os.fsync(file.fileno())
        os.link(draft, path)
    except FileExistsError:
        pass  # another process created the key first; all processes use that one
    finally:
        draft.unlink()
