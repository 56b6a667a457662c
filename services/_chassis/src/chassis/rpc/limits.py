"""Limits on the resources that a port's clients may use. `OPTIONS` sets gRPC's own limits."""

from chassis.errors import ResourceExhausted
from chassis.rpc.peers import REASONS, Peers
from chassis.telemetry import semconv
from chassis.telemetry.instruments import Attributes, Telemetry
from chassis.telemetry.refusals import Refusals

OPTIONS = (
    ("grpc.max_concurrent_streams", 100),
    # By default, gRPC counts finished streams until their memory is freed, so it may refuse calls below the limit.
    ("grpc.http.overload_protection", 0),
    # Limit how much gRPC buffers for a stream that isn't being read. With bdp_probe, gRPC would resize the buffer.
    ("grpc.http2.bdp_probe", 0),
    ("grpc.http2.lookahead_bytes", 16 * 1024),
    # Limit how many calls can wait for Python to accept them, because each takes up memory. gRPC cancels the rest.
    ("grpc.server.max_pending_requests", 800),
    ("grpc.server.max_pending_requests_hard_limit", 800),
    ("grpc.server_handshake_timeout_ms", 10_000),
    # Until a client acknowledges our HTTP/2 settings, gRPC accepts 16 MiB of headers per call, so limit how long a
    # client may take to do so.
    ("grpc.http2.settings_timeout", 10_000),
    # By default, gRPC's read buffer for a busy connection grows to 4 MiB.
    ("grpc.experimental.tcp_max_read_chunk_size", 64 * 1024),
)

_SHED_RETRY_SECONDS = 0.5
_METHOD_SHARE = 3  # on the internal port, at most a third of the allowed calls may be to the same method
_IN_FLIGHT = "in_flight"


class Overloaded(ResourceExhausted):
    """The port has reached one of its limits."""


class Limiter:
    """Limits the calls on one port. Each port has its own limits, so that customers can't lock operators out.

    Attributes:
        in_flight: the number of calls that the service is working on.
        method_limit: how many of these calls may be to the same method.
        peers: the port's connections, and its calls that are waiting for a client.
    """

    def __init__(self, port_name: str, limit: int, max_connections: int, telemetry: Telemetry) -> None:
        self.attributes: Attributes = ((semconv.PORT_NAME, port_name),)
        self.limit = limit
        # Customers cause internal calls, too, such as order quotes. If those hang, operators must still get through.
        self.method_limit = max(1, limit // _METHOD_SHARE) if port_name == "internal" else limit
        self.in_flight = 0
        self._refusals = Refusals(port_name, telemetry, _IN_FLIGHT, *REASONS)
        self.peers = Peers(max_connections, self._refusals)

    def admit(self, of_method: int) -> None:
        """Raise Overloaded if too many calls (including this one) are in flight on the port, or to the same method."""
        if self.in_flight > self.limit or of_method > self.method_limit:
            self._refusals.add(_IN_FLIGHT)
            raise Overloaded("too many calls in flight", retry_after_seconds=_SHED_RETRY_SECONDS)
