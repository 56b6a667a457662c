"""Secret keys for HMACs, of which a new one can replace an old one without losing what the old one made."""

import hmac
from collections.abc import Mapping
from dataclasses import dataclass, field

MIN_KEY_LENGTH = 32


@dataclass(frozen=True, slots=True)
class HmacKeys:
    """One key, or several while one replaces another: the first makes new HMACs, and HMACs of all of them are accepted.

    Attributes:
        keys: HMACs of no data yet, by the key's id, which derives from the key and reveals nothing about it. To look
            OpenSSL's algorithm up for each HMAC takes as long as the HMAC.
    """

    keys: Mapping[str, hmac.HMAC] = field(repr=False)

    @classmethod
    def parse(cls, text: str) -> "HmacKeys":
        """Parse keys separated by commas. Raise ValueError, without quoting any of them, if one is too short."""
        keys = [key.encode() for key in text.split(",")]
        if any(len(key) < MIN_KEY_LENGTH for key in keys):
            raise ValueError(f"must be one key of at least {MIN_KEY_LENGTH} characters, or several separated by commas")
        prepared = [hmac.new(key, digestmod="sha256") for key in keys]
        return cls({_digest(key, b"key id")[:4].hex(): key for key in prepared})

    @property
    def current_id(self) -> str:
        """The id of the key for new HMACs."""
        return next(iter(self.keys))

    def digests(self, data: bytes) -> list[bytes]:
        """Return the HMAC-SHA256 of the data under each key, that of the current key first."""
        return [_digest(key, data) for key in self.keys.values()]


def _digest(key: hmac.HMAC, data: bytes) -> bytes:
    hashed = key.copy()
    hashed.update(data)
    return hashed.digest()
