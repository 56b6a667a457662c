"""The client's address behind proxies: `X-Forwarded-For` is read only from those that a setting names."""

import ipaddress
from collections.abc import Iterable

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

_Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network


def parse_networks(text: str) -> tuple[Network, ...]:
    """Parse addresses and networks, separated by commas."""
    try:
        return tuple(ipaddress.ip_network(item.strip()) for item in text.split(",") if item.strip())
    except ValueError as error:
        raise ValueError("must be addresses or networks, such as 10.0.0.0/8, separated by commas") from error


class ForwardedClients:
    """Sets the client of each request that comes through trusted proxies to the address that they report.

    The client is the last address of `X-Forwarded-For` that is not a trusted proxy: those before it may be invented.
    A malformed header is ignored.
    """

    def __init__(self, app: ASGIApp, trusted: Iterable[Network]) -> None:
        self._app = app
        self._trusted = tuple(trusted)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and (client := self._client(scope)) is not None:
            scope = {**scope, "client": (client, 0)}
        await self._app(scope, receive, send)

    def _client(self, scope: Scope) -> str | None:
        """Return the address that the proxies report, if the connection is that of a trusted one."""
        connection = scope.get("client")
        if connection is None or not self._is_trusted(_parse_address(connection[0])):
            return None
        client: _Address | None = None
        for item in reversed(",".join(Headers(scope=scope).getlist("x-forwarded-for")).split(",")):
            client = _parse_address(item.strip())
            if client is None:
                return None
            if not self._is_trusted(client):
                break
        return str(client)

    def _is_trusted(self, address: _Address | None) -> bool:
        return address is not None and any(address in network for network in self._trusted)


def _parse_address(text: str) -> _Address | None:
    """Parse an address; one that is mapped into IPv6, as on a socket for both versions, is returned as IPv4."""
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return None
    return getattr(address, "ipv4_mapped", None) or address
