"""What generated stubs and servicers need of gRPC: channels, calls and contexts."""

from collections.abc import Awaitable, Callable, Generator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import grpc

from chassis import errors

Metadata = Sequence[tuple[str, str]]


@dataclass
class Reply:
    """What a server replies; without an error it has a response."""

    response: bytes = b""
    trailing: Metadata = ()
    error: errors.DomainError | None = None


Handler = Callable[[bytes, Metadata], Awaitable[Reply]]
"""Serves a request with its metadata."""


@dataclass(frozen=True)
class Channel:
    """The part of a grpc.aio.Channel that our clients use.

    Attributes:
        call: makes a call, given its path, the request, metadata and a timeout in seconds.
        hidden: the metadata that is not sent.
    """

    call: Callable[[str, bytes, Metadata, float], Awaitable[Reply]]
    is_reachable: Callable[[], bool]
    timeout_seconds: float
    hidden: Sequence[str] = ()

    def get_state(self) -> grpc.ChannelConnectivity:
        return grpc.ChannelConnectivity.READY if self.is_reachable() else grpc.ChannelConnectivity.TRANSIENT_FAILURE

    def unary_unary(
        self, path: str, request_serializer: Any, response_deserializer: Any, **_: object
    ) -> "Callable[..., _ClientCall]":
        def start(request: Any, *, timeout: float | None = None, metadata: Metadata = ()) -> _ClientCall:
            shown = [pair for pair in metadata if pair[0] not in self.hidden]
            send = partial(self.call, path, request_serializer(request), shown, timeout or self.timeout_seconds)
            return _ClientCall(send, response_deserializer)

        return start


@dataclass
class _ClientCall:
    """A call that starts when it is awaited."""

    send: Callable[[], Awaitable[Reply]]
    deserialize: Callable[[bytes], Any]
    trailing: Metadata = ()

    def __await__(self) -> Generator[Any, None, Any]:
        return self._run().__await__()

    async def _run(self) -> Any:
        reply = await self.send()
        self.trailing = reply.trailing
        return self.deserialize(reply.response)

    async def trailing_metadata(self) -> Metadata:
        return self.trailing


@dataclass
class CallContext:
    """The part of a grpc.aio.ServicerContext that our servicers use."""

    metadata: Metadata
    trailing: Metadata = ()

    def invocation_metadata(self) -> Metadata:
        return self.metadata

    def set_trailing_metadata(self, trailing: Metadata) -> None:
        self.trailing = trailing


def bytes_to_bytes(handler: Any) -> Handler:
    """Return a method of a servicer as a function of serialized messages."""

    async def serve(request: bytes, metadata: Metadata) -> Reply:
        context = CallContext(metadata)
        response = await handler.unary_unary(handler.request_deserializer(request), context)
        return Reply(handler.response_serializer(response), context.trailing)

    return serve
