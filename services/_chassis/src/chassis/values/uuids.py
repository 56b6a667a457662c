"""UUIDs that derive from what they identify, as text.

The standard library's would take an order that is placed alone three times as long: it looks the hash function up in
OpenSSL each time, and makes a number of the hash to take that apart again.
"""

import hashlib
import uuid


class NameUuids:
    """UUIDs of version 5: of names within a namespace, equal ones for equal names."""

    def __init__(self, namespace: uuid.UUID) -> None:
        self._hashed_namespace = hashlib.sha1(namespace.bytes, usedforsecurity=False)

    def of(self, name: str) -> str:
        """Return the UUID of a name."""
        hashed = self._hashed_namespace.copy()
        hashed.update(name.encode())
        return format_uuid(hashed.digest(), version=5)


def format_uuid(digest: bytes, *, version: int) -> str:
    """Return the UUID of a version that consists of the first bytes of a hash."""
    digits = digest[:16].hex()
    variant = "89ab"[digest[8] >> 4 & 3]
    return f"{digits[:8]}-{digits[8:12]}-{version}{digits[13:16]}-{variant}{digits[17:20]}-{digits[20:]}"
