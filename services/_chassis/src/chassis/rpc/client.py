"""Channels to other services. Every call has a deadline, is traced and timed, and raises a DomainError if it fails."""

import asyncio
import json
import time
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias, cast

import grpc
from google.protobuf.message import Message
from grpc.aio import Metadata
from opentelemetry import context as otel_context
from opentelemetry import trace
from opentelemetry.trace import Span, SpanKind

from chassis.deadline import remaining_seconds
from chassis.errors import DeadlineExceeded, PeerBroken
from chassis.lazy_log import log
from chassis.rpc import calls
from chassis.rpc.connection import Connection
from chassis.rpc.status import from_rpc_error, recorded_reason
from chassis.settings import Balancing, Settings
from chassis.telemetry import semconv
from chassis.telemetry.instruments import Attributes, Telemetry
from chassis.telemetry.propagation import TRACEPARENT, baggage_attributes, is_unsampled, unsampled_traceparent
from chassis.tls.certificates import Certificates

Check: TypeAlias = Callable[[Any, Any, Mapping[str, str]], Iterable[tuple[str, bool]]]
"""Checks a response, given its request and trailing metadata. Yields each part's name and whether the part is valid."""

MAX_RESPONSE_BYTES = 4 * 1024 * 1024

OPTIONS = (
    # Detect within two seconds that a peer has vanished without closing its connection; the kernel would take minutes.
    ("grpc.keepalive_time_ms", 1_000),
    ("grpc.keepalive_timeout_ms", 1_000),
    ("grpc.http2.max_pings_without_data", 0),
    # By default, gRPC waits a minute for the answer to a ping, whatever keepalive_timeout_ms says.
    ("grpc.http2.ping_timeout_ms", 1_000),
    # Close an idle channel's connections, or each would be pinged every second forever.
    ("grpc.client_idle_timeout_ms", 30_000),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 1_000),
    ("grpc.max_reconnect_backoff_ms", 1_000),
    # When a connection closes, gRPC resolves the name again to find new pods, but at most this often.
    ("grpc.dns_min_time_between_resolutions_ms", 1_000),
    ("grpc.max_receive_message_length", MAX_RESPONSE_BYTES),
    # Channels that share a connection may crash the process; see decisions/0008-channels-share-nothing.md.
    ("grpc.use_local_subchannel_pool", 1),
)


def channel(
    target: str,
    service: str,
    *,
    timeout_seconds: float,
    retryable: Sequence[str] = (),
    checks: Mapping[str, Check] | None = None,
    telemetry: Telemetry | None = None,
    certificates: Certificates | None = None,
    server_name: str = "",
    balancing: Balancing = "clients",
) -> grpc.aio.Channel:
    """Open a channel that balances calls across all of a service's addresses, unless a mesh does that.

    Args:
        target: `host:port`, with a host that DNS resolves to all backends, or any gRPC target URI.
        service: the service's full name, such as `shop.CartService`; backends that report it as unhealthy get no calls.
        timeout_seconds: the default timeout for calls, which the deadline of the call being served may shorten.
        retryable: methods that are safe to repeat (reads, and writes with an idempotency key); on UNAVAILABLE and
            CANCELLED, they are attempted up to three times.
        checks: response checks by full method name; a call whose response has an invalid part raises PeerBroken.
        certificates: enables mutual TLS with these certificates; None means plaintext.
        server_name: the server's name in its certificate, if it isn't the target's host (as with port forwarding).
        balancing: "mesh" opens one connection to the mesh's proxy, which retries calls. Health isn't checked, because
            the proxy would send the check to a single pod, and when that pod stops, calls to all pods would fail.
    """
    options: list[tuple[str, Any]] = [*OPTIONS]
    if balancing == "clients":
        options.append(("grpc.service_config", _service_config(service, retryable)))
    if server_name:
        options.append(("grpc.ssl_target_name_override", server_name))
    name = target if "://" in target or target.startswith("unix:") else f"dns:///{target}"
    wrap = partial(_Method, target, timeout_seconds, telemetry or Telemetry(), checks or {})
    # Connection implements the only methods that stubs and our code use: unary_unary, get_state and close.
    return cast("grpc.aio.Channel", Connection(name, options, certificates, wrap))


def channel_of(settings: Settings, telemetry: Telemetry, target: str, service: str, **options: Any) -> grpc.aio.Channel:
    """Open a channel with a process's certificates, balancing and telemetry. Pass `options` to `channel`."""
    return channel(
        target, service, telemetry=telemetry, certificates=settings.tls_folder, balancing=settings.balancing, **options
    )


def _service_config(service: str, retryable: Sequence[str]) -> str:
    config: dict[str, Any] = {
        # gRPC's default, pick_first, sends all of a channel's calls to one pod.
        "loadBalancingConfig": [{"round_robin": {}}],
        "healthCheckConfig": {"serviceName": service},
        # Stop retrying while more than one call in ten fails, because retries would keep an overloaded peer down.
        "retryThrottling": {"maxTokens": 100, "tokenRatio": 0.1},
    }
    if retryable:
        config["methodConfig"] = [
            {
                "name": [{"service": service, "method": method} for method in retryable],
                "retryPolicy": {
                    "maxAttempts": 3,
                    "initialBackoff": "0.05s",
                    "maxBackoff": "0.5s",
                    "backoffMultiplier": 2,
                    # Servers cancel calls that they can't accept: see max_pending_requests in limits.py.
                    "retryableStatusCodes": ["UNAVAILABLE", "CANCELLED"],
                },
            }
        ]
    return json.dumps(config)


class _Method:
    raw: Any
    """The gRPC method to call, on the current channel. `Connection` sets this attribute."""

    def __init__(
        self, target: str, timeout_seconds: float, telemetry: Telemetry, checks: Mapping[str, Check], name: str
    ) -> None:
        self.name = name
        self.timeout_seconds = timeout_seconds
        self.check = checks.get(name)
        self._telemetry = telemetry
        self.durations = telemetry.histogram(semconv.RPC_CLIENT_DURATION)
        host, _, port = target.rpartition(":")
        self.attributes: Attributes = (
            (semconv.RPC_SYSTEM, "grpc"),
            (semconv.RPC_METHOD, name),
            (semconv.SERVER_ADDRESS, host.strip("[]") or target),
        )
        # `record_call` changes the status if the call fails.
        self._span_attributes: dict[str, str | int] = {**dict(self.attributes), semconv.RPC_STATUS: "OK"}
        if port.isdecimal():
            self._span_attributes[semconv.SERVER_PORT] = int(port)

    def __call__(
        self, request: Message, *, timeout: float | None = None, metadata: Sequence[tuple[str, str]] = ()
    ) -> "_Call":
        return _Call(self, request, timeout or self.timeout_seconds, metadata)

    def require_valid(self, parts: Iterable[tuple[str, bool]]) -> None:
        for part, valid in parts:
            if not valid:
                # Never log the value: it may be anything, even a card number.
                log.error("peer broken", method=self.name, part=part)
                raise PeerBroken(f"{self.name} returned an invalid {part}")

    def start_span(self) -> tuple[Span, Iterable[tuple[str, str]]]:
        """Return a call's span (an invalid span in an unsampled trace) and the headers that propagate it."""
        if traceparent := unsampled_traceparent.get():
            return trace.INVALID_SPAN, ((TRACEPARENT, traceparent),)
        telemetry, context = self._telemetry, otel_context.get_current()
        if telemetry.follows_parents and is_unsampled(context):
            return trace.INVALID_SPAN, telemetry.propagation.inject(context).items()
        attributes = {**self._span_attributes, **baggage_attributes(context)}
        span = telemetry.tracer.start_span(self.name, context, SpanKind.CLIENT, attributes)
        # Don't make the span current: other work that the caller does during this call doesn't belong under it.
        return span, telemetry.propagation.inject(trace.set_span_in_context(span, context)).items()


@dataclass(eq=False)  # keeps calls hashable, for asyncio.gather
class _Call:
    """A call that starts when it is awaited, and can be awaited only once."""

    _method: _Method
    _request: Message
    _timeout_seconds: float
    _metadata: Sequence[tuple[str, str]]
    _raw: Any = None

    def __await__(self) -> Generator[Any, None, Any]:
        return self._run().__await__()

    async def trailing_metadata(self) -> tuple[tuple[str, str], ...]:
        """Return the trailing metadata of a call that has been awaited."""
        return tuple(await self._raw.trailing_metadata() or ())

    async def _run(self) -> Any:
        method = self._method
        left = remaining_seconds()  # the time left to answer the call being served
        if left is not None and left <= 0:
            raise DeadlineExceeded(f"no time left to call {method.name}")
        timeout_seconds = self._timeout_seconds if left is None else min(self._timeout_seconds, left)
        span, headers = method.start_span()
        started = time.perf_counter()
        code = "OK"
        try:
            metadata = Metadata(*self._metadata, *headers)  # saves time: gRPC would check and convert other types
            self._raw = method.raw(self._request, timeout=timeout_seconds, metadata=metadata)
            response = await self._raw
            if method.check is not None:
                method.require_valid(method.check(self._request, response, dict(await self.trailing_metadata())))
        except PeerBroken as error:
            code = error.reason
            span.set_attribute(semconv.ERROR_REASON, code)
            raise
        except grpc.aio.AioRpcError as error:
            code = error.code().name
            domain_error = from_rpc_error(error)
            span.set_attribute(semconv.ERROR_REASON, recorded_reason(domain_error))
            raise domain_error from None  # don't chain the AioRpcError: its message may quote the request
        except asyncio.CancelledError:
            code = "CANCELLED"
            raise
        else:
            return response
        finally:
            seconds = time.perf_counter() - started
            calls.record_call(span, method.durations, method.attributes, code, seconds, failed=code != "OK")
