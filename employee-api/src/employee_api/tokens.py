"""Secret tokens. They are 256 random bits: unlike passwords they can't be guessed from a fast hash."""

import hashlib
import secrets

_TOKEN_BYTES = 32


def new_token() -> str:
    return secrets.token_urlsafe(_TOKEN_BYTES)


def hash_token(token: str) -> bytes:
    """Return what is stored of a token, or of any text that a client sends as one."""
    return hashlib.sha256(token.encode(errors="surrogateescape")).digest()
