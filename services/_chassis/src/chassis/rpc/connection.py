"""Mutual TLS for gRPC servers and channels, with certificates that may be replaced while the process runs."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import grpc

from chassis.background import repeat
from chassis.tls.certificates import Certificates, Identity

_FOLLOW_SECONDS = 1.0  # how often to check for new certificates, and whether a new channel has connected
_LONGEST_CALL_SECONDS = 60.0

Options = Sequence[tuple[str, Any]]


def server_credentials(certificates: Certificates) -> grpc.ServerCredentials:
    """Return credentials that require client certificates. Each new connection uses the current files."""
    served: Identity | None = None

    def changed() -> Any:
        """Return a new configuration if the files have changed, else None. gRPC calls this for each connection."""
        nonlocal served
        current = certificates.refresh()
        if current is served:
            return None
        served = current
        return grpc.ssl_server_certificate_configuration([(current.key, current.certificate)], current.authorities)

    return grpc.dynamic_ssl_server_credentials(changed(), changed, require_client_authentication=True)


def open_channel(target: str, identity: Identity | None, options: Options = ()) -> grpc.aio.Channel:
    """Open a channel, with mutual TLS if an identity is given. gRPC can't replace an open channel's identity."""
    if identity is None:
        return grpc.aio.insecure_channel(target, options=options)
    credentials = grpc.ssl_channel_credentials(identity.authorities, identity.key, identity.certificate)
    return grpc.aio.secure_channel(target, credentials, options=options)


class Connection:
    """A replacement for grpc.aio.Channel that supports plaintext, and mutual TLS with certificate rotation.

    `wrap` is called with the name of each of a stub's methods, and returns the object that replaces the method. The
    connection sets the object's `raw` attribute to the current channel's real method.
    """

    def __init__(
        self, target: str, options: Options, certificates: Certificates | None, wrap: Callable[[str], Any]
    ) -> None:
        self._target = target
        self._options = options
        self._wrap = wrap
        self._identity = certificates.refresh() if certificates else None
        self._channel = open_channel(target, self._identity, options)
        self._opened = [self._channel]
        self._uses: list[Callable[[grpc.aio.Channel], None]] = []
        self._following: asyncio.Task[None] | None = None
        if certificates is not None:
            following = repeat(lambda: self._follow(certificates), _FOLLOW_SECONDS, "channel not replaced")
            self._following = asyncio.create_task(following, name="follow certificates")

    def unary_unary(self, method: str, *serializers: Any, _registered_method: bool | None = None, **named: Any) -> Any:
        wrapped = self._wrap(method.lstrip("/"))

        def use(channel: grpc.aio.Channel) -> None:
            wrapped.raw = channel.unary_unary(method, *serializers, **named)

        self._uses.append(use)
        use(self._channel)
        return wrapped

    def get_state(self, *, try_to_connect: bool = False) -> grpc.ChannelConnectivity:
        """Return READY if a backend is connected and reports the service as healthy."""
        return self._channel.get_state(try_to_connect)

    async def close(self, grace: float | None = None) -> None:
        if self._following is not None:
            self._following.cancel()
            await asyncio.gather(self._following, return_exceptions=True)
        for channel in self._opened:
            await channel.close(grace)

    async def _follow(self, certificates: Certificates) -> None:
        """Open another channel if the certificates have changed, and use it once a backend has accepted them.

        Until then, keep using the old channel: during a CA rollover, some peers don't trust the new CA yet.
        """
        identity = certificates.refresh()
        if identity is not self._identity:
            self._identity = identity
            self._opened.append(open_channel(self._target, identity, self._options))
        newest = self._opened[-1]
        if newest is self._channel or newest.get_state(try_to_connect=True) is not grpc.ChannelConnectivity.READY:
            return
        self._channel = newest
        for use in self._uses:
            use(newest)
        while self._opened[0] is not newest:
            await self._opened[0].close(_LONGEST_CALL_SECONDS)  # lets calls in flight finish
            del self._opened[0]
