"""Wraps each servicer method once, at registration, because grpc.aio's interceptors take five times as long.

The wrapper traces a call, sheds it if the service is overloaded, sets its deadline, decodes the request, checks it for
control characters, runs the handler, and maps errors to statuses.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import grpc
import structlog
from google.protobuf.descriptor import Descriptor
from google.protobuf.descriptor_pool import Default
from google.protobuf.message import DecodeError, Message
from opentelemetry import context as otel_context
from opentelemetry import trace
from opentelemetry.trace import Span, SpanKind

from chassis.deadline import deadline
from chassis.errors import DomainError, InvalidArgument
from chassis.failpoints import Failpoints
from chassis.rpc import calls
from chassis.rpc.access import Serve, for_callers
from chassis.rpc.calls import ServicerContext
from chassis.rpc.limits import UNREAD, Limiter
from chassis.rpc.status import code_of, recorded_reason, to_status
from chassis.telemetry import semconv
from chassis.telemetry.instruments import Attributes, Telemetry
from chassis.telemetry.propagation import baggage_attributes, is_unsampled
from chassis.tls.callers import Callers
from chassis.values.text import check_text

log = structlog.get_logger()

# The semantic conventions count these codes as server failures, and all others as caller errors.
_SERVER_FAULTS = frozenset({"UNKNOWN", "DEADLINE_EXCEEDED", "UNIMPLEMENTED", "INTERNAL", "UNAVAILABLE", "DATA_LOSS"})

# gRPC clients send this header when they retry a call.
_PREVIOUS_ATTEMPTS = "grpc-previous-rpc-attempts"

Handler = Callable[[Any, ServicerContext], Awaitable[Message]]


class MalformedMessage(InvalidArgument):
    """The request's bytes do not parse as the method's request message."""


@dataclass
class WrappingRegistrar:
    """Stands in for a server in generated `add_..._to_server` functions. Wraps and collects the methods they add.

    Attributes:
        callers: which callers may call which methods; None lets everyone call every method.
        methods: maps each added service's full name to its wrapped methods, by method name.
    """

    telemetry: Telemetry
    limiter: Limiter
    failpoints: Failpoints
    callers: Callers | None
    methods: dict[str, dict[str, Any]] = field(default_factory=dict)

    def add_generic_rpc_handlers(self, generic_rpc_handlers: Any) -> None:
        """Do nothing, because generated code also passes the same methods to add_registered_method_handlers."""

    def add_registered_method_handlers(self, service_name: str, method_handlers: Mapping[str, Any]) -> None:
        service = Default().FindServiceByName(service_name)
        wrapped = self.methods[service_name] = {}
        for name, handler in method_handlers.items():
            path = f"{service_name}/{name}"
            handle = _with_failpoint(path, handler.unary_unary, self.failpoints)
            decode = decoder(handler.request_deserializer, service.FindMethodByName(name).input_type)
            serve: Serve = _Method(path, handle, decode, self.telemetry, self.limiter).serve
            if self.callers is not None:
                serve = for_callers(path, self.callers, serve, self.telemetry)
            # Let `serve` decode requests: with deserializers, gRPC would answer a malformed request with INTERNAL.
            # Use a stream, because grpc.aio never ends a unary call if the client ends its side without a message.
            wrapped[name] = grpc.stream_unary_rpc_method_handler(serve)


def _with_failpoint(name: str, handler: Handler, failpoints: Failpoints) -> Handler:
    """Wrap a handler so that it reaches its method's failpoints, unless these can never be enabled."""
    after = f"{name}.after"
    failpoints.methods |= {name, after}
    if not failpoints.changeable and failpoints.enabled.keys().isdisjoint({name, after}):
        return handler  # decide this once, so that disabled failpoints don't slow calls down

    async def reach_and_handle(request: Message, context: ServicerContext) -> Message:
        await failpoints.reach(name)
        response = await handler(request, context)
        await failpoints.reach(after)
        return response

    return reach_and_handle


def decoder(parse: Callable[[bytes], Message], message_type: Descriptor) -> Callable[[bytes], Message]:
    """Return a function that decodes a request, or raises InvalidArgument if the request is invalid."""

    def decode(raw: Any) -> Message:
        if raw is grpc.aio.EOF:
            raise MalformedMessage("the call ended without a request message")
        try:
            request = parse(raw)
        except DecodeError as error:  # protobuf raises this for invalid UTF-8, too
            raise MalformedMessage(f"the request is not a valid {message_type.full_name}") from error
        check_text(request)
        return request

    return decode


class _Method:
    """A service method: its handler, and the steps that every call goes through."""

    def __init__(
        self, name: str, handler: Handler, decode: Callable[[bytes], Message], telemetry: Telemetry, limiter: Limiter
    ) -> None:
        self._name = name
        self._handler = handler
        self._decode = decode
        self._tracer = telemetry.tracer
        self._follows_parents = telemetry.follows_parents
        self._propagation = telemetry.propagation
        self._durations = telemetry.histogram(semconv.RPC_SERVER_DURATION)
        self._retried = telemetry.counter(semconv.RETRIED_REQUESTS)
        self._limiter = limiter
        self._in_flight = 0
        self._attributes: Attributes = ((semconv.RPC_SYSTEM, "grpc"), (semconv.RPC_METHOD, name))
        self._span_attributes = {**dict(self._attributes), semconv.RPC_STATUS: "OK"}  # unless `record_call` changes it

    async def serve(self, _requests: object, context: ServicerContext) -> bytes:
        """Serve one call. Raise only the errors that grpc.aio expects: AbortError and CancelledError."""
        # Don't count a call before its request arrives: clients that never send one must not use up the limit.
        peer = context.peer()
        raw = await self._limiter.peers.wait(context, context.read(), peer)
        started = time.perf_counter()
        span = self._start_span(context)
        code = "OK"
        self._limiter.in_flight += 1
        self._in_flight += 1
        try:
            # Admit the call before decoding it: an overloaded service must not spend time on calls that it sheds.
            self._limiter.admit(self._in_flight)
            if (seconds := context.time_remaining()) is not None:
                deadline.set(asyncio.get_running_loop().time() + seconds)
            response = await self._handler(self._decode(raw), context)
            return self._limiter.peers.hold(peer, response.SerializeToString(), UNREAD)
        except DomainError as error:
            code = code_of(error).name
            span.set_attribute(semconv.ERROR_REASON, recorded_reason(error))
            await context.abort_with_status(to_status(error))
            raise  # never reached, because abort_with_status raises
        except grpc.aio.AbortError:
            code = context.code().name
            raise
        except asyncio.CancelledError:
            code = "CANCELLED"
            raise
        except Exception as error:
            code = "INTERNAL"
            span.set_attribute(semconv.ERROR_REASON, recorded_reason(error))
            log.exception("unexpected error", method=self._name)
            await context.abort(grpc.StatusCode.INTERNAL, "internal error")
            raise
        finally:
            self._limiter.in_flight -= 1
            self._in_flight -= 1
            seconds, failed = time.perf_counter() - started, code in _SERVER_FAULTS
            calls.record_call(span, self._durations, self._attributes, code, seconds, failed=failed)

    def _start_span(self, context: ServicerContext) -> Span:
        """Start the call's span and make it current. In an unsampled trace, just make the caller's span current."""
        headers = self._trace_headers(context)
        if self._follows_parents and self._propagation.pass_on(headers):
            return trace.INVALID_SPAN
        parent = self._propagation.extract(headers)
        # There is no need to detach these contexts, because every call runs in its own task.
        if self._follows_parents and is_unsampled(parent):
            otel_context.attach(parent)
            return trace.INVALID_SPAN
        span = self._tracer.start_span(
            self._name, parent, SpanKind.SERVER, {**self._span_attributes, **baggage_attributes(parent)}
        )
        current = trace.set_span_in_context(span, parent)
        is_dropped = self._follows_parents and not span.is_recording()
        if not (is_dropped and self._propagation.pass_on([*self._propagation.inject(current).items()])):
            otel_context.attach(current)
        return span

    def _trace_headers(self, context: ServicerContext) -> list[tuple[str, str]]:
        headers = []
        for name, value in context.invocation_metadata() or ():
            if name in self._propagation.headers:
                headers.append((name, str(value)))
            elif name == _PREVIOUS_ATTEMPTS:
                self._retried.add(1, ((semconv.RPC_METHOD, self._name),))
        return headers
