"""Sessions: a signed cookie holds a random id, which is the user id of the visitor's cart and orders.

A visitor gets a new id when adding the first item to a cart and again when entering an address, so an attacker gains
nothing by planting a cookie.
"""

import base64
import hmac
import re
import secrets
import time
from collections.abc import Sequence
from dataclasses import dataclass

from chassis.values.keys import HmacKeys

LIFETIME_SECONDS = 30 * 24 * 3600

_ID_BYTES = 16
_MAX_IDS = 9
_ID = "[A-Za-z0-9_-]{22}"
_FORMAT = re.compile(rf"({_ID}(?:\.{_ID}){{0,{_MAX_IDS - 1}}})\.([0-9]{{1,12}})\.([A-Za-z0-9_-]{{43}})")


@dataclass(slots=True)
class Session:
    """A visitor's session.

    Attributes:
        ids: the ids whose orders the visitor may see: the current id, earlier ids that have orders, and the first id.
        begun: whether the browser sent a valid cookie with these ids.
        cookie: the cookie that the response sets; "" deletes the browser's cookie, and None leaves it unchanged.
    """

    ids: tuple[str, ...]
    begun: bool
    cookie: str | None
    _keys: HmacKeys

    @property
    def user_id(self) -> str:
        return self.ids[0]

    @property
    def first_id(self) -> str:
        """The id that the session began with. Limits and telemetry identify the session by this id."""
        return self.ids[-1]

    def begin(self) -> None:
        """Start a new session. The response to this request sets its cookie."""
        self.ids = (new_key(),)
        self.cookie = _sign(self._keys, self.ids)

    def next_id(self, key: str) -> str:
        """Derive a new id from the form's key, so that sending the form again yields the same id."""
        return _base64(self._keys.digests(f"id:{self.user_id} {key}".encode())[0][:_ID_BYTES])

    def renew(self, user_id: str, *, has_orders: bool) -> None:
        """Make `user_id` the session's id. Keep the previous id too if it has orders or was the session's first."""
        *earlier, first = self.ids if has_orders or len(self.ids) == 1 else self.ids[1:]
        self.ids = (user_id, *earlier[: _MAX_IDS - 2], first)
        self.cookie = _sign(self._keys, self.ids)

    def end(self) -> None:
        self.cookie = ""


def open_session(keys: HmacKeys, cookie: str) -> Session:
    """Return the cookie's session. If the cookie is missing, invalid or expired, return one that hasn't begun.

    If the cookie is signed with an old key, the response replaces it with a cookie signed with the current key.
    """
    match = _FORMAT.fullmatch(cookie)
    if match and int(match[2]) > time.time():
        ids, ends_at = tuple(match[1].split(".")), int(match[2])
        for position, expected in enumerate(_signatures(keys, match[1], ends_at)):
            if hmac.compare_digest(match[3], expected):
                return Session(ids, True, _sign(keys, ids, ends_at) if position else None, keys)
    return Session((new_key(),), False, None, keys)


def _sign(keys: HmacKeys, ids: Sequence[str], ends_at: int | None = None) -> str:
    """Return a session's signed cookie. `ends_at` is a Unix timestamp, by default 30 days from now."""
    text, ends_at = ".".join(ids), ends_at or int(time.time()) + LIFETIME_SECONDS
    return f"{text}.{ends_at}.{_signatures(keys, text, ends_at)[0]}"


def _signatures(keys: HmacKeys, ids: str, ends_at: int) -> list[str]:
    return [_base64(digest) for digest in keys.digests(f"session:{ids}:{ends_at}".encode())]


def _base64(digest: bytes) -> str:
    return base64.urlsafe_b64encode(digest).rstrip(b"=").decode()


def new_key() -> str:
    return secrets.token_urlsafe(_ID_BYTES)
