"""Secret HMAC keys. While a new key is replacing an old key, HMACs made with either key are accepted."""

import hmac
from collections.abc import Mapping
from dataclasses import dataclass, field

MIN_KEY_LENGTH = 32


@dataclass(frozen=True, slots=True)
class HmacKeys:
    """One key, or several during a key change: the first key makes new HMACs; HMACs made with any key are accepted.

    Attributes:
        keys: each key's HMAC of no data, by key id. The id is derived from the key but reveals nothing about it.
    """

    keys: Mapping[str, hmac.HMAC] = field(repr=False)

    @classmethod
    def parse(cls, text: str) -> "HmacKeys":
        """Parse comma-separated keys. Raise ValueError if a key is too short; the message never quotes a key."""
        keys = [key.encode() for key in text.split(",")]
        if any(len(key) < MIN_KEY_LENGTH for key in keys):
            raise ValueError(f"must be one key of at least {MIN_KEY_LENGTH} characters, or several separated by commas")
        # A key id of 32 bits is enough to tell a handful of keys apart.
        hashes = [hmac.new(key, digestmod="sha256") for key in keys]
        return cls({_digest(key, b"key id")[:4].hex(): key for key in hashes})

    @property
    def current_id(self) -> str:
        return next(iter(self.keys))

    def digests(self, data: bytes) -> list[bytes]:
        """Return the data's HMAC-SHA256 with each key, starting with the current key."""
        return [_digest(key, data) for key in self.keys.values()]


def _digest(key: hmac.HMAC, data: bytes) -> bytes:
    # Copying takes 6 µs; a new HMAC would take 40 µs, because OpenSSL looks up the algorithm.
    copied = key.copy()
    copied.update(data)
    return copied.digest()
