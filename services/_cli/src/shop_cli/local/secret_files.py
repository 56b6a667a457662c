import os
import secrets
from contextlib import suppress
from pathlib import Path
from tempfile import NamedTemporaryFile

_BYTES = 32


def load_or_create(path: Path) -> str:
    """Return the secret in a file that only its owner can read. Generate the secret if the file is missing.

    Processes that start at the same time get the same secret.
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
