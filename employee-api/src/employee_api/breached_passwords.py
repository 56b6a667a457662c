"""Looks up passwords in a file of breached passwords, which may be larger than memory.

The file's lines are sorted bytewise. Each line is a password, or a SHA-1 hash that may be followed by `:` and a count,
as in the files from Have I Been Pwned.
"""

import hashlib
import re
from bisect import bisect_left
from pathlib import Path
from typing import BinaryIO

_SHA1_LINE = re.compile(rb"[0-9A-F]{40}(:[0-9]+)?", re.IGNORECASE)
_MAX_LINE_BYTES = 64 * 1024
_SAMPLES = 1000


def is_breached(password: str, path: Path) -> bool:
    """Return whether the file contains the password. Raise OSError if the file can't be read."""
    with path.open("rb") as file:
        hashed = _has_hashes(file)
        # Use SHA-1, because published lists of breached passwords contain SHA-1 hashes.
        sha1 = hashlib.sha1(password.encode(), usedforsecurity=False).hexdigest().upper()
        wanted = (sha1 if hashed else password).encode()

        def is_reached(offset: int) -> bool:
            key = _key_from(file, offset, hashed=hashed)
            return key is None or key >= wanted

        first = bisect_left(range(file.seek(0, 2)), True, key=is_reached)
        return _key_from(file, first, hashed=hashed) == wanted


def parse_breached_passwords_file(name: str) -> Path:
    """Return `name` as a path. Raise ValueError if the file is unreadable, empty or, judging by samples, not sorted."""
    path = Path(name)
    try:
        with path.open("rb") as file:
            hashed, size = _has_hashes(file), file.seek(0, 2)
            samples = [_key_from(file, size * number // _SAMPLES, hashed=hashed) for number in range(_SAMPLES)]
    except OSError as error:
        raise ValueError(f"can't be read: {error.strerror}") from None
    keys = [key for key in samples if key is not None]
    if not keys:
        raise ValueError("is empty")
    if keys != sorted(keys):
        raise ValueError("must be sorted by bytes, as `LC_ALL=C sort` does")
    return path


def _has_hashes(file: BinaryIO) -> bool:
    file.seek(0)
    return _SHA1_LINE.fullmatch(file.readline(_MAX_LINE_BYTES).strip()) is not None


def _key_from(file: BinaryIO, offset: int, *, hashed: bool) -> bytes | None:
    """Return the password or hash in the first line that begins at or after the offset, or None after the last line."""
    file.seek(max(offset - 1, 0))
    if offset:
        file.readline(_MAX_LINE_BYTES)
    line = file.readline(_MAX_LINE_BYTES)
    if not line:
        return None
    return line.strip().partition(b":")[0].upper() if hashed else line.rstrip(b"\r\n")
