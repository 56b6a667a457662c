"""Sessions: a signed cookie holds a random id, which is the user id of the visitor's cart and orders.

Adding the first item to a cart starts a session with a new id, so an attacker gains nothing by planting a cookie.
"""

import base64
import hmac
import re
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass

from chassis.values.keys import HmacKeys

LIFETIME_SECONDS = 30 * 24 * 3600

_ID_BYTES = 16
_FORMAT = re.compile(r"([A-Za-z0-9_-]{22})\.([0-9]{1,12})\.([A-Za-z0-9_-]{43})")


@dataclass(slots=True)
class Session:
    """A visitor's session.

    Attributes:
        begun: whether the browser sent a valid cookie with this id.
        cookie: the cookie that the response sets; "" deletes the browser's cookie, and None leaves it unchanged.
    """

    user_id: str
    begun: bool
    cookie: str | None
    _sign: Callable[[str, int], str]

    def begin(self) -> None:
        """Start a new session. The response to this request sets its cookie."""
        self.user_id = secrets.token_urlsafe(_ID_BYTES)
        self.cookie = self._sign(self.user_id, int(time.time()) + LIFETIME_SECONDS)

    def end(self) -> None:
        self.cookie = ""


class SessionSigner:
    """Issues and verifies session cookies."""

    def __init__(self, keys: HmacKeys) -> None:
        self._keys = keys

    def open(self, cookie: str | None) -> Session:
        """Return the cookie's session, or a session that has not begun if the cookie is missing, invalid or expired.

        If the cookie is signed with an old key, the response replaces it with a cookie signed with the current key.
        """
        match = _FORMAT.fullmatch(cookie or "")
        if match and int(match[2]) > time.time():
            user_id, ends_at = match[1], int(match[2])
            for position, expected in enumerate(self._signatures(user_id, ends_at)):
                if hmac.compare_digest(match[3], expected):
                    return Session(user_id, True, self._cookie(user_id, ends_at) if position else None, self._cookie)
        return Session(secrets.token_urlsafe(_ID_BYTES), False, None, self._cookie)

    def _cookie(self, user_id: str, ends_at: int) -> str:
        return f"{user_id}.{ends_at}.{self._signatures(user_id, ends_at)[0]}"

    def _signatures(self, user_id: str, ends_at: int) -> list[str]:
        digests = self._keys.digests(f"session:{user_id}:{ends_at}".encode())
        return [base64.urlsafe_b64encode(digest).rstrip(b"=").decode() for digest in digests]


def new_key() -> str:
    return secrets.token_urlsafe(_ID_BYTES)
