"""SMTP_URL: address and credentials of the relay. Apart from `smtp_relay`, whose SMTP client takes 1 to 5 MB."""

import re
from dataclasses import dataclass, field
from urllib.parse import unquote

_URL = re.compile(
    r"(?P<scheme>smtps?)://((?P<user>[^:@/]+):(?P<password>[^:@/]+)@)?(?P<host>[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\])(:(?P<port>[0-9]{1,5}))?/?"
)
_PORT, _SUBMISSION_PORT, _TLS_PORT = 25, 587, 465


@dataclass(frozen=True, slots=True)
class Relay:
    """Address and credentials of an SMTP relay. With `tls` the connection uses TLS from the first byte."""

    host: str
    port: int
    tls: bool = False
    user: str | None = None
    password: str | None = field(default=None, repr=False)

    @property
    def start_tls(self) -> bool | None:
        """Whether to use STARTTLS: required with credentials, otherwise if offered (None), never on top of TLS."""
        if self.tls:
            return False
        return True if self.user else None


def parse_relay(url: str) -> Relay:
    """Parse `smtp[s]://[user:password@]host[:port]`. Raise ValueError, which never quotes the URL.

    The default port is 465 for smtps, 587 with a user and 25 otherwise.
    """
    parts = _URL.fullmatch(url)
    if not parts:
        raise ValueError(
            "must be smtp://host:port or smtps://host:port, optionally with user:password@ before the host"
        )
    tls, user, host = parts["scheme"] == "smtps", parts["user"], parts["host"].strip("[]")
    port = parts["port"] or (_TLS_PORT if tls else _SUBMISSION_PORT if user else _PORT)
    if not user:
        return Relay(host, int(port), tls)
    return Relay(host, int(port), tls, unquote(user), unquote(parts["password"]))
