"""Wraps every method of a servicer, once, when it is registered.

A wrapped call is traced, shed when the service is overloaded, given its deadline, decoded, checked for control
characters and handled; its error is mapped to a status. Interceptors of grpc.aio would cost five times as much.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
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
from chassis.rpc.limits import Limiter
from chassis.rpc.status import code_of, recorded_reason, to_status
from chassis.telemetry import semconv
from chassis.telemetry.instruments import Telemetry
from chassis.telemetry.metrics import Attributes
from chassis.telemetry.propagation import baggage_attributes, is_unsampled
from chassis.tls.callers import Callers
from chassis.values.text import check_text

log = structlog.get_logger()

# By the conventions only these codes are failures of a server: the others are errors of the caller.
_SERVER_FAULTS = frozenset({"UNKNOWN", "DEADLINE_EXCEEDED", "UNIMPLEMENTED", "INTERNAL", "UNAVAILABLE", "DATA_LOSS"})

# gRPC's own header of an attempt that follows failed ones.
_PREVIOUS_ATTEMPTS = "grpc-previous-rpc-attempts"

Handler = Callable[[Any, ServicerContext], Awaitable[Message]]


class MalformedMessage(InvalidArgument):
    """The bytes of the request do not parse as the method's request message."""


class WrappingRegistrar:
    """Stands in for a server where generated add_..._to_server functions add methods, and keeps the wrapped ones.

    `service_names` are the full names of what was added, and `handlers` have the methods.
    """

    def __init__(
        self, telemetry: Telemetry, limiter: Limiter, failpoints: Failpoints, callers: Callers | None = None
    ) -> None:
        self._telemetry = telemetry
        self._callers = callers  # None: every caller may call every method
        self._limiter = limiter
        self._failpoints = failpoints
        self.service_names: list[str] = []
        self.handlers: list[grpc.GenericRpcHandler] = []

    def add_generic_rpc_handlers(self, generic_rpc_handlers: Any) -> None:
        """Do nothing: generated code passes the same methods to add_registered_method_handlers, with their names."""

    def add_registered_method_handlers(self, service_name: str, method_handlers: Mapping[str, Any]) -> None:
        service = Default().FindServiceByName(service_name)
        # Whoever looks for the cause of a fault must not find when it was set.
        telemetry = Telemetry() if service_name == "shop.internal.Failpoints" else self._telemetry
        wrapped: dict[str, grpc.RpcMethodHandler[Any, Any]] = {}
        for name, handler in method_handlers.items():
            path = f"{service_name}/{name}"
            handle = _with_failpoint(path, handler.unary_unary, self._failpoints)
            decode = decoder(handler.request_deserializer, service.FindMethodByName(name).input_type)
            serve: Serve = _Method(path, handle, decode, telemetry, self._limiter).serve
            if self._callers is not None:
                serve = for_callers(path, self._callers, serve, telemetry)
            # No serializers: `serve` decodes requests, because gRPC would answer malformed ones with INTERNAL.
            # As a stream: grpc.aio never ends a unary call whose client half-closes it without a message.
            wrapped[name] = grpc.stream_unary_rpc_method_handler(serve)
        self.service_names.append(service_name)
        # Not as registered methods: with each call grpc.aio waits anew for the next call of every one of those.
        self.handlers.append(grpc.method_handlers_generic_handler(service_name, wrapped))


def _with_failpoint(name: str, handler: Handler, failpoints: Failpoints) -> Handler:
    """Return the handler, with the failpoint of its method before it if that may act."""
    failpoints.methods.add(name)
    if not failpoints.changeable and name not in failpoints.enabled:
        return handler  # decided once, so that failpoints which are off cost a call nothing

    async def reach_and_handle(request: Message, context: ServicerContext) -> Message:
        await failpoints.reach(name)
        return await handler(request, context)

    return reach_and_handle


def decoder(parse: Callable[[bytes], Message], message_type: Descriptor) -> Callable[[bytes], Message]:
    """Return what decodes a request. It raises InvalidArgument."""

    def decode(raw: Any) -> Message:
        if raw is grpc.aio.EOF:
            raise MalformedMessage(message="the call ended without a request message")
        try:
            request = parse(raw)
        except DecodeError as error:  # also for invalid UTF-8
            raise MalformedMessage(message=f"the request is not a valid {message_type.full_name}") from error
        check_text(request)
        return request

    return decode


class _Method:
    """A method of a service, with everything that surrounds its handler."""

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
        self._attributes: Attributes = ((semconv.RPC_SYSTEM, "grpc"), (semconv.RPC_METHOD, name))

    async def serve(self, _requests: object, context: ServicerContext) -> bytes:
        """Serve one call. Raise only errors that grpc.aio expects: AbortError and CancelledError."""
        # Before the call counts: a client that opens calls and sends nothing must not fill the limit.
        raw = await self._limiter.requests.wait(context, context.read())
        started = time.perf_counter()
        span = self._start_span(context)
        code = "OK"
        self._limiter.in_flight += 1
        try:
            # Before the request is decoded: an overloaded service spends nothing on the calls that it sheds.
            self._admit(context)
            response = await self._handler(self._decode(raw), context)
            return self._limiter.respond(response.SerializeToString())
        except DomainError as error:
            code = code_of(error).name
            span.set_attribute(semconv.ERROR_REASON, recorded_reason(error))
            await context.abort_with_status(to_status(error))
            raise  # not reached: abort raises
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
            seconds, failed = time.perf_counter() - started, code in _SERVER_FAULTS
            calls.record_call(span, self._durations, self._attributes, code, seconds, failed=failed)

    def _admit(self, context: ServicerContext) -> None:
        """Shed the call if there are too many, and set its deadline."""
        self._limiter.admit()
        if (seconds := context.time_remaining()) is not None:
            deadline.set(asyncio.get_running_loop().time() + seconds)

    def _start_span(self, context: ServicerContext) -> Span:
        """Make the call's span the current one; in a trace that is not sampled, which gets no span, the caller's."""
        headers: dict[str, str] = {}
        known = self._propagation.headers
        for key, value in context.invocation_metadata() or ():
            if key in known:
                headers[key] = str(value)
            elif key == _PREVIOUS_ATTEMPTS:
                self._retried.add(1, ((semconv.RPC_METHOD, self._name),))
        parent = self._propagation.extract(headers)
        # Never detached, here and below, because every call runs in a task of its own.
        if self._follows_parents and is_unsampled(parent):
            otel_context.attach(parent)
            return trace.INVALID_SPAN
        attributes = {**dict(self._attributes), **baggage_attributes(parent)}
        span = self._tracer.start_span(self._name, parent, SpanKind.SERVER, attributes)
        otel_context.attach(trace.set_span_in_context(span, parent))
        return span
