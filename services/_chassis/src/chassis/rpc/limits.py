"""Limits on the calls, connections and memory that a port's clients may use. `OPTIONS` sets gRPC's own limits."""

import asyncio
import os
import socket
import stat
import struct
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Container, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, TypeVar
from urllib.parse import unquote

import grpc

from chassis.errors import ResourceExhausted
from chassis.rpc.calls import ServicerContext
from chassis.telemetry import semconv
from chassis.telemetry.instruments import Attributes, Telemetry
from chassis.telemetry.refusals import Refusals
from chassis.values.networks import network

T = TypeVar("T")

OPTIONS = (
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
_IN_FLIGHT, NO_REQUEST, UNREAD, OPEN_CALL = "in_flight", "no_request", "unread_response", "open_call"
_CONNECTION = "connection"

SPARE_CONNECTIONS = 250  # the connection limit may be exceeded by this many between checks
_MAX_BYTES = 10 * 1024 * 1024
_UNCHECKED_CALLS = 300
_CALL_BYTES = 48 * 1024  # the memory that a call takes in addition to its messages
_RECENT_SECONDS, _REQUEST_SECONDS = 1.0, 10.0
_CHECK_SECONDS, _BUSY_CHECK_SECONDS, _BUSY_CONNECTIONS = 0.5, 0.05, 40
# While a process uses hardly any CPU time, clients can't make it hold much more memory, so check less often.
_IDLE_CPU_SECONDS, _IDLE_CHECKS = 0.002, 5
# The fields to read from Linux's `struct tcp_info`: milliseconds since data last arrived, and bytes received.
_TCP_INFO = struct.Struct("=52xI72xQ")


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
        self._refusals = Refusals(port_name, telemetry, _IN_FLIGHT, NO_REQUEST, UNREAD, OPEN_CALL, _CONNECTION)
        self.peers = Peers(max_connections, self._refusals)

    def admit(self, of_method: int) -> None:
        """Raise Overloaded if too many calls (including this one) are in flight on the port, or to the same method."""
        if self.in_flight > self.limit or of_method > self.method_limit:
            self._refusals.add(_IN_FLIGHT)
            raise Overloaded("too many calls in flight", retry_after_seconds=_SHED_RETRY_SECONDS)


@dataclass
class _Connection:
    address: str  # the client's address, such as `192.0.2.7:50312` or `[2001:db8::7]:50312`
    network: str
    silent_ms: int
    received_bytes: int
    has_called: bool = False
    held: Counter[str] = field(default_factory=Counter)  # bytes of memory that the connection ties up, by reason


class Peers:
    """A port's connections. Each holds memory: data received since its last request, and calls waiting for the client.

    If the connections together hold too much, `check` closes the largest holders, starting in the network that holds
    the most. If there are too many connections, `check` starts in the network with the most, and closes first those
    that have never sent a request, then those that have been silent the longest.
    """

    def __init__(self, limit: int, refusals: Refusals) -> None:
        self.port = 0
        self._limit = limit
        self._refusals = refusals
        self._calls: dict[Any, tuple[str, int, str, float]] = {}
        self._next_check = _UNCHECKED_CALLS
        self._pause_seconds = _CHECK_SECONDS
        self._skipped, self._cpu_seconds = 0, 0.0
        self._requesting: set[str] = set()
        self._received: dict[str, int] = {}  # the bytes received from each address up to its last request

    async def wait(self, context: ServicerContext, request: Awaitable[T], peer: str) -> T:
        """Await the current task's request. If that takes over ten seconds, abort the call with RESOURCE_EXHAUSTED."""
        task = asyncio.current_task()
        self.hold(peer, b"", NO_REQUEST)
        try:
            received = await request
        except asyncio.CancelledError:
            if task in self._calls:  # `watch` removes a task before cancelling it, so the client has cancelled the call
                raise
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "waited too long for the client")
            raise
        finally:
            self._calls.pop(task, None)
        self._requesting.add(peer)
        return received

    def hold(self, peer: str, message: bytes, reason: str) -> bytes:
        """Count a message toward its peer's memory until the current task ends or calls `wait`. Return the message."""
        self._calls[asyncio.current_task()] = peer, len(message) + _CALL_BYTES, reason, time.monotonic()
        if len(self._calls) >= self._next_check:
            with suppress(OSError):  # if no file descriptors are left, skip the check
                self.check()
        return message

    async def watch(self) -> None:
        """Pause, check the connections, and abort calls whose requests are late."""
        # Poll, because gRPC doesn't report new connections, and because a timer per call would slow calls down.
        await asyncio.sleep(self._pause_seconds)
        has_waiting_calls = any(reason != OPEN_CALL for _, _, reason, _ in self._calls.values())
        is_idle = not has_waiting_calls and time.process_time() - self._cpu_seconds < _IDLE_CPU_SECONDS
        self._skipped = (self._skipped + 1) % _IDLE_CHECKS if is_idle else 0
        if not self._skipped:  # checks would take most of an idle process's CPU time
            self._pause_seconds = _CHECK_SECONDS if self.check() < _BUSY_CONNECTIONS else _BUSY_CHECK_SECONDS
        self._cpu_seconds = time.process_time()
        latest = time.monotonic() - _REQUEST_SECONDS
        for task, (_, _, reason, started) in [*self._calls.items()]:
            if reason == NO_REQUEST and started <= latest:
                del self._calls[task]
                self._refusals.add(NO_REQUEST)
                task.cancel()

    def check(self) -> int:
        """Close connections until the rest are within the limits. Return how many connections there were before."""
        found = self._connections()
        heavy = _excess(found, _MAX_BYTES, lambda one: one.held.total(), lambda one: one.held.total())
        idle = _excess(found, self._limit, lambda _: 1, lambda one: (not one.has_called, one.silent_ms))
        reasons = {one.address: _CONNECTION for one in idle}
        reasons |= {one.address: one.held.most_common(1)[0][0] for one in heavy}
        for reason in reasons.values():
            self._refusals.add(reason)
        if reasons:
            for _ in _connections(self.port, reasons):
                pass
        return len(found)

    def _connections(self) -> list[_Connection]:
        found = {connection.address: connection for connection in _connections(self.port)}
        for address in map(_address, self._requesting):
            if address in found:
                self._received[address] = found[address].received_bytes
        self._requesting.clear()
        self._received = {address: size for address, size in self._received.items() if address in found}
        for address, connection in found.items():
            connection.has_called = address in self._received
            connection.held[NO_REQUEST] = connection.received_bytes - self._received.get(address, 0)
        self._calls = {task: call for task, call in self._calls.items() if not task.done()}
        self._next_check = len(self._calls) + _UNCHECKED_CALLS
        recent = time.monotonic() - _RECENT_SECONDS  # don't count newer waits: their requests are about to be read
        for peer, size, reason, started in self._calls.values():
            if (reason != NO_REQUEST or started <= recent) and (calling := found.get(_address(peer))):
                # Our clients keep a health watch open on each connection, so don't count its first open call.
                calling.held[reason] += 0 if reason == OPEN_CALL and OPEN_CALL not in calling.held else size
        return [*found.values()]


def _excess(
    found: list[_Connection], limit: int, weigh: Callable[[_Connection], int], key: Callable[[_Connection], Any]
) -> Iterator[_Connection]:
    """Yield connections to close until the rest weigh at most `limit`. Begin with those in the heaviest network."""
    totals: Counter[str] = Counter()
    for one in found:
        totals[one.network] += weigh(one)
    excess = totals.total() - limit
    for one in sorted(found, key=lambda one: (totals[one.network], key(one)), reverse=True) if excess > 0 else ():
        if excess > 0:
            excess -= weigh(one)
            yield one


def _address(peer: str) -> str:
    """Return the address in a gRPC peer name like `ipv4:192.0.2.7:50312` or `ipv6:%5B2001:db8::7%5D:50312`."""
    return unquote(peer).partition(":")[2]


def _connections(port: int, closed: Container[str] = ()) -> Iterator[_Connection]:
    """Yield a port's connections, found among this process's open files. Close those listed in `closed`.

    On macOS, the connections' idle time and received bytes are reported as 0.
    """
    for file in map(int, os.listdir("/dev/fd")):  # noqa: PTH208
        with suppress(OSError, IndexError):  # the file has been closed, or the socket has no peer or port
            # Duplicate only sockets: closing a duplicate of a SQLite file would release SQLite's locks on the file.
            if not stat.S_ISSOCK(os.fstat(file).st_mode):
                continue
            # Even with AF_INET6, an IPv4 socket returns its IPv4 addresses.
            with socket.fromfd(file, socket.AF_INET6, socket.SOCK_STREAM) as found:
                if found.getsockname()[1] == port and not found.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
                    try:
                        host, client_port, *_ = found.getpeername()
                    except OSError:
                        found.shutdown(socket.SHUT_RDWR)  # wakes gRPC, which misses an end that coincides with data
                        raise
                    host, info = host.removeprefix("::ffff:"), bytes(_TCP_INFO.size)
                    address = f"[{host}]:{client_port}" if ":" in host else f"{host}:{client_port}"
                    if address in closed:
                        found.shutdown(socket.SHUT_RDWR)
                    elif hasattr(socket, "TCP_INFO"):
                        info = found.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _TCP_INFO.size)
                    yield _Connection(address, network(host), *_TCP_INFO.unpack(info))
