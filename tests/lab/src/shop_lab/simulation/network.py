"""The simulated network: unary calls as messages that may be delayed, lost, doubled, reordered or refused."""

import asyncio
from collections import Counter, defaultdict
from collections.abc import Callable, Generator, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

import grpc

from chassis import errors
from chassis.rpc import calls
from chassis.rpc.status import KINDS, code_of
from shop_lab.simulation.faults import Fate, Faults, Numbers
from shop_lab.simulation.processes import Process, current_process

Metadata = Sequence[tuple[str, str]]

_RESET_SECONDS = 0.0005
_RETRY_PAUSES = (0.05, 0.1)
_NANOSECONDS_OF_LATENCY = (200_000, 2_000_000)


on_behalf_of: ContextVar[str] = ContextVar("on_behalf_of", default="")
"""The customer for whom the current task works; empty in background loops. It is sent along with each call.

It is part of the names of events, so that their durations remain the same without another customer.
"""


@dataclass
class CallContext:
    """The part of a grpc.aio.ServicerContext that our servicers use."""

    metadata: Metadata
    trailing: Metadata = ()

    def invocation_metadata(self) -> Metadata:
        return self.metadata

    def set_trailing_metadata(self, trailing: Metadata) -> None:
        self.trailing = trailing


@dataclass
class _Reply:
    response: bytes = b""
    trailing: Metadata = ()
    error: errors.DomainError | None = None


@dataclass(eq=False)
class _Call:
    name: str
    path: str
    request: bytes
    metadata: Metadata
    expires_at: float
    source: Process | None
    customer: str
    fate: Fate | None
    numbers: Numbers
    reply: asyncio.Future[_Reply]
    handlers: list[asyncio.Task[None]] = field(default_factory=list)

    @property
    def latency(self) -> float:
        low, high = _NANOSECONDS_OF_LATENCY
        return (low + self.numbers[1] ** 3 * (high - low)) / 1e9

    def resolve(self, reply: _Reply) -> None:
        """Hand the caller a reply, unless it has one."""
        if not self.reply.done():
            self.reply.set_result(reply)


class Network:
    """Delivers calls between processes.

    Args:
        find: returns the process that serves at an address, None if none does at this moment.
        kill: ends a process.

    Attributes:
        errors: unexpected ones of servicers, in words.
    """

    def __init__(
        self,
        faults: Faults,
        find: Callable[[str], Process | None],
        kill: Callable[[Process], None],
        record: Callable[[str], None],
    ) -> None:
        self.errors: list[str] = []
        self._faults = faults
        self._find = find
        self._kill = kill
        self._record = record
        self._loop = asyncio.get_running_loop()
        self._numbers: Counter[str] = Counter()
        self._open: dict[str, list[_Call]] = {}
        self._requests = 0
        self._served: dict[str, asyncio.Event] = defaultdict(asyncio.Event)

    def channel(self, address: str, timeout_seconds: float, retryable: Sequence[str] = ()) -> Any:
        """Open a channel, for generated stubs."""
        return _Channel(self, address, timeout_seconds, retryable)

    def is_reachable(self, address: str) -> bool:
        """Return whether a process serves at an address."""
        process = self._find(address)
        return process is not None and process.alive and not process.stopping.is_set()

    def is_idle(self) -> bool:
        """Return whether no request is on its way or being served."""
        return not self._requests and not any(self._open.values())

    async def wait_until_served(self, path: str) -> None:
        """Wait until the next call of a method has taken effect. Its reply is not yet on its way."""
        self._served[path].clear()
        await self._served[path].wait()

    def connection_lost(self, process: Process) -> None:
        """Fail the calls that a dead process was serving."""
        for call in self._open.pop(process.name, ()):
            self._loop.call_later(_RESET_SECONDS, call.resolve, _Reply(error=errors.Unavailable("connection reset")))

    async def call(self, address: str, path: str, request: bytes, metadata: Metadata, timeout_seconds: float) -> _Reply:
        """Make a call and return its reply. Raises DomainError, as a client of the chassis does."""
        source = current_process()
        if source is not None:
            await source.running()
        customer = on_behalf_of.get()
        name = f"{source.name if source else ''}({customer})>{path.rpartition('.')[2]}"
        self._numbers[name] += 1
        name = f"{name}#{self._numbers[name]}"
        numbers = self._faults.numbers_of(name)
        call = _Call(
            name, path, request, metadata, self._loop.time() + timeout_seconds, source, customer,
            self._faults.next_fate(path, numbers), numbers, self._loop.create_future(),
        )  # fmt: skip
        self._send(address, call)
        timer = self._loop.call_at(call.expires_at, call.resolve, _Reply(error=errors.DeadlineExceeded("too late")))
        try:
            reply = await call.reply
        except asyncio.CancelledError:
            self._cancel_handlers(call)
            raise
        finally:
            timer.cancel()
        if source is not None:
            await source.running()
        if reply.error is None:
            return reply
        if isinstance(reply.error, errors.DeadlineExceeded):
            self._cancel_handlers(call)
        raise _as_received(reply.error)

    def _send(self, address: str, call: _Call) -> None:
        if call.fate is not None:
            self._record(f"{call.name} {call.fate}")
        if call.fate is Fate.LOSE_REQUEST:
            return
        delay = call.latency + (_delay_of(call) if call.fate is Fate.DELAY_REQUEST else 0.0)
        self._deliver_later(delay, address, call)
        if call.fate is Fate.DOUBLE_REQUEST:
            self._deliver_later(delay + _delay_of(call), address, call)

    def _deliver_later(self, seconds: float, address: str, call: _Call) -> None:
        self._requests += 1
        self._loop.call_later(seconds, self._deliver, address, call)

    def _deliver(self, address: str, call: _Call) -> None:
        self._requests -= 1
        process = self._find(address)
        if process is None or not self.is_reachable(address):
            self._loop.call_later(_RESET_SECONDS, call.resolve, _Reply(error=errors.Unavailable("connection refused")))
            return
        self._open.setdefault(process.name, []).append(call)
        handler = process.spawn(self._serve(process, call), call.name)
        handler.add_done_callback(lambda _: self._close(process, call))
        call.handlers.append(handler)

    def _close(self, process: Process, call: _Call) -> None:
        """Close a call that was cancelled where it was served."""
        served = self._open.get(process.name, [])
        if call in served:
            served.remove(call)

    async def _serve(self, process: Process, call: _Call) -> None:
        await process.running()
        on_behalf_of.set(call.customer)
        calls.deadline.set(call.expires_at)
        if delay := self._faults.delays.get(call.path):
            await asyncio.sleep(delay * call.numbers[2])
        reply = await self._handle(process, call)
        await process.running()
        error = f" {reply.error.reason}" if reply.error else ""
        self._record(f"{call.name} at {process.name}{error}")
        self._served[call.path].set()
        self._open[process.name].remove(call)
        match call.fate:
            case Fate.KILL_CALLEE:
                self._open[process.name].append(call)
                self._kill(process)
            case Fate.KILL_CALLER if call.source is not None:
                self._kill(call.source)
            case Fate.LOSE_REPLY:
                pass
            case Fate.DELAY_REPLY:
                self._loop.call_later(_delay_of(call), call.resolve, reply)
            case _:
                self._loop.call_later(call.latency, call.resolve, reply)

    async def _handle(self, process: Process, call: _Call) -> _Reply:
        refusal = self._faults.refusals.get(call.path)
        handler = process.handlers.get(call.path)
        try:
            if refusal is not None or handler is None:
                return _Reply(error=refusal or errors.Unimplemented("no such method"))
            context = CallContext(call.metadata)
            response = await handler(call.request, context)
        except errors.DomainError as error:
            return _Reply(error=error)
        except Exception as error:  # noqa: BLE001 - a server reports any other error as INTERNAL
            self.errors.append(f"{call.name}: {error!r}")
            return _Reply(error=errors.Internal("internal error"))
        return _Reply(response, context.trailing)

    def _cancel_handlers(self, call: _Call) -> None:
        """Cancel the call where it is served, unless the message that says so is lost."""
        if call.fate is None:
            for handler in call.handlers:
                self._loop.call_later(call.latency, handler.cancel)


def _delay_of(call: _Call) -> float:
    """Return a delay from milliseconds to ten seconds: a third are longer than a lease."""
    return float(10 ** (4 * call.numbers[2] ** (1 / 3) - 3))


def _as_received(error: errors.DomainError) -> errors.DomainError:
    """Return the error as a client gets it: one of the kinds, without the server's class."""
    kind = KINDS[code_of(error)]
    if isinstance(error, errors.InvalidArgument):
        return errors.InvalidArgument(*error.violations, reason=error.reason, message=error.message)
    return kind(error.message, reason=error.reason, metadata=error.metadata)


class _Channel:
    def __init__(self, network: Network, address: str, timeout_seconds: float, retryable: Sequence[str]) -> None:
        self.network = network
        self.address = address
        self.timeout_seconds = timeout_seconds
        self.retryable = retryable

    def get_state(self) -> grpc.ChannelConnectivity:
        reachable = self.network.is_reachable(self.address)
        return grpc.ChannelConnectivity.READY if reachable else grpc.ChannelConnectivity.TRANSIENT_FAILURE

    def unary_unary(
        self, path: str, request_serializer: Any, response_deserializer: Any, **_: object
    ) -> "Callable[..., _ClientCall]":
        attempts = len(_RETRY_PAUSES) + 1 if path.rpartition("/")[2] in self.retryable else 1

        def start(request: Any, *, timeout: float | None = None, metadata: Metadata = ()) -> _ClientCall:
            message = request_serializer(request)
            seconds = timeout or self.timeout_seconds
            return _ClientCall(self, path, message, metadata, seconds, attempts, response_deserializer)

        return start


@dataclass
class _ClientCall:
    """A call that starts when it is awaited."""

    channel: _Channel
    path: str
    request: bytes
    metadata: Metadata
    timeout_seconds: float
    attempts: int
    deserialize: Callable[[bytes], Any]
    trailing: Metadata = ()

    def __await__(self) -> Generator[Any, None, Any]:
        return self._run().__await__()

    async def trailing_metadata(self) -> Metadata:
        return self.trailing

    async def _run(self) -> Any:
        loop = asyncio.get_running_loop()
        remaining = calls.remaining_seconds()
        if remaining is not None and remaining <= 0:
            raise errors.DeadlineExceeded("no time left")
        seconds = self.timeout_seconds if remaining is None else min(self.timeout_seconds, remaining)
        expires_at = loop.time() + seconds
        for pause in _RETRY_PAUSES[: self.attempts - 1]:
            try:
                return await self._attempt(expires_at - loop.time())
            except errors.Unavailable:
                if loop.time() + pause >= expires_at:
                    raise
                await asyncio.sleep(pause)
        return await self._attempt(expires_at - loop.time())

    async def _attempt(self, seconds: float) -> Any:
        channel = self.channel
        reply = await channel.network.call(channel.address, self.path, self.request, self.metadata, seconds)
        self.trailing = reply.trailing
        return self.deserialize(reply.response)


def bytes_to_bytes(handler: Any) -> Callable[..., Any]:
    """Return a method of a servicer as a function of serialized messages."""

    async def serve(request: bytes, context: CallContext) -> bytes:
        response = await handler.unary_unary(handler.request_deserializer(request), context)
        return bytes(handler.response_serializer(response))

    return serve
