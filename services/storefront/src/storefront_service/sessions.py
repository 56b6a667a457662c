"""Sessions: a random id in a signed cookie. The id is the user id of the session's cart and orders."""

import base64
import hmac
import re
import secrets
from dataclasses import dataclass

from chassis.values.keys import HmacKeys

_ID_BYTES = 16
_FORMAT = re.compile(r"([A-Za-z0-9_-]{22})\.([A-Za-z0-9_-]{43})")


@dataclass(frozen=True, slots=True)
class Session:
    """A visitor.

    Attributes:
        cookie: the value to set; None when the browser has a current one.
    """

    user_id: str
    cookie: str | None


class SessionSigner:
    """Issues and verifies session cookies."""

    def __init__(self, keys: HmacKeys) -> None:
        self._keys = keys

    def open(self, cookie: str | None) -> Session:
        """Return the session of a cookie; a new one if the cookie is missing, forged or of a removed key.

        A cookie that was signed with an old key is replaced by one that is signed with the current key.
        """
        match = _FORMAT.fullmatch(cookie or "")
        if match:
            user_id, signature = match.groups()
            for position, expected in enumerate(self._signatures(user_id)):
                if hmac.compare_digest(signature, expected):
                    return Session(user_id, None if position == 0 else self._cookie(user_id))
        user_id = secrets.token_urlsafe(_ID_BYTES)
        return Session(user_id, self._cookie(user_id))

    def _cookie(self, user_id: str) -> str:
        return f"{user_id}.{self._signatures(user_id)[0]}"

    def _signatures(self, user_id: str) -> list[str]:
        digests = self._keys.digests(f"session:{user_id}".encode())
        return [base64.urlsafe_b64encode(digest).rstrip(b"=").decode() for digest in digests]


def new_key() -> str:
    return secrets.token_urlsafe(_ID_BYTES)
