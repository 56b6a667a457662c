"""The simulated network: unary calls as messages that may be delayed, lost, doubled, reordered or refused."""

import asyncio
from collections import Counter, defaultdict
from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import grpc

from chassis import errors
from chassis.deadline import deadline, remaining_seconds
from chassis.rpc.status import from_rpc_error, to_status
from shop_lab.simulation.faults import PLACE_ORDER, Fate, Faults, Numbers
from shop_lab.simulation.generated import Channel, Metadata, Reply
from shop_lab.simulation.processes import Process, current_process

_RESET_SECONDS = 0.0005
_SHORTEST_LATENCY, _LONGEST_LATENCY = 0.0002, 0.002

on_behalf_of: ContextVar[str] = ContextVar("on_behalf_of", default="")
"""The customer for whom the current task works; empty in background loops. It is sent along with each call.

It is part of the names of events, so that their durations remain the same without another customer.
"""


@dataclass(eq=False)
class _Call:
    name: str
    path: str
    request: bytes
    metadata: Metadata
    expires_at: float
    source: Process | None
    fate: Fate | None
    numbers: Numbers
    reply: asyncio.Future[Reply]
    customer: str = field(default_factory=on_behalf_of.get)
    handlers: list[asyncio.Task[None]] = field(default_factory=list)

    @property
    def latency(self) -> float:
        return _SHORTEST_LATENCY + self.numbers[1] ** 3 * (_LONGEST_LATENCY - _SHORTEST_LATENCY)

    @property
    def delay(self) -> float:
        """Milliseconds to ten seconds, of a call that is delayed: half are longer than a lease."""
        return float(10 ** (4 * self.numbers[2] ** (1 / 5) - 3))

    def resolve(self, reply: Reply) -> None:
        """Hand the caller a reply, unless it has one."""
        if not self.reply.done():
            self.reply.set_result(reply)


@dataclass(eq=False)
class Network:
    """Delivers calls between processes.

    Attributes:
        find: returns the process that serves at an address, None if none does at this moment.
        kill: ends a process.
        errors: unexpected ones of servicers, in words.
        customers_doubled: the customers for whom a PlaceOrder request was delivered twice.
    """

    loop: asyncio.AbstractEventLoop
    faults: Faults
    find: Callable[[str], Process | None]
    kill: Callable[[Process], None]
    record: Callable[[str], None]
    errors: list[str] = field(default_factory=list)
    customers_doubled: set[str] = field(default_factory=set)
    _numbers: Counter[str] = field(default_factory=Counter)
    _requests: int = 0
    _served: defaultdict[str, asyncio.Event] = field(default_factory=lambda: defaultdict(asyncio.Event))

    def channel(self, address: str, timeout_seconds: float) -> Any:
        """Open a channel, for generated stubs."""
        return Channel(partial(self._call, address), partial(self._is_reachable, address), timeout_seconds)

    def _is_reachable(self, address: str) -> bool:
        process = self.find(address)
        return process is not None and process.alive and not process.stopping.is_set()

    def is_idle(self) -> bool:
        """Return whether no request is on its way or being served."""
        return not self._requests

    async def wait_until_served(self, path: str) -> None:
        """Wait until the next call of a method has taken effect. Its reply is not yet on its way."""
        self._served[path].clear()
        await self._served[path].wait()

    async def _call(self, address: str, path: str, request: bytes, metadata: Metadata, timeout_seconds: float) -> Reply:
        """Make a call and return its reply. Raises DomainError, as a client of the chassis does."""
        remaining = remaining_seconds()
        seconds = timeout_seconds if remaining is None else min(timeout_seconds, remaining)
        if seconds <= 0:
            raise errors.DeadlineExceeded("no time left")
        source = current_process()
        if source is not None:
            await source.running()
        call = self._new_call(path, request, metadata, self.loop.time() + seconds, source)
        self._send(address, call)
        timer = self.loop.call_at(call.expires_at, call.resolve, Reply(error=errors.DeadlineExceeded("too late")))
        try:
            reply = await call.reply
        except asyncio.CancelledError:
            self._cancel_handlers(call)
            raise
        finally:
            timer.cancel()
        if source is not None:
            await source.running()
        if isinstance(reply.error, errors.DeadlineExceeded):
            self._cancel_handlers(call)
        if reply.error is not None:
            raise _as_received(reply.error)
        return reply

    def _new_call(
        self, path: str, request: bytes, metadata: Metadata, expires_at: float, source: Process | None
    ) -> _Call:
        name = f"{source.name if source else ''}({on_behalf_of.get()})>{path.rpartition('.')[2]}"
        self._numbers[name] += 1
        name = f"{name}#{self._numbers[name]}"
        numbers = self.faults.numbers_of(name)
        fate = self.faults.fate_of(path, numbers)
        return _Call(name, path, request, metadata, expires_at, source, fate, numbers, self.loop.create_future())

    def _send(self, address: str, call: _Call) -> None:
        if call.fate is not None:
            self.record(f"{call.name} {call.fate}")
        if call.fate is Fate.LOSE_REQUEST:
            return
        is_delayed = call.fate in {Fate.DELAY_REQUEST, Fate.ORPHAN_REQUEST}
        seconds = call.latency + (call.delay if is_delayed else 0.0)
        self._deliver_later(seconds, address, call)
        if call.fate is Fate.DOUBLE_REQUEST:
            self._deliver_later(seconds + call.delay, address, call)
            if call.path == PLACE_ORDER:
                self.customers_doubled.add(call.customer)
        if call.fate is Fate.ORPHAN_REQUEST and call.source is not None:
            self.kill(call.source)

    def _deliver_later(self, seconds: float, address: str, call: _Call) -> None:
        self._requests += 1
        self.loop.call_later(seconds, self._deliver, address, call)

    def _deliver(self, address: str, call: _Call) -> None:
        process = self.find(address)
        if process is None or not self._is_reachable(address):
            self._end(call, "connection refused")
            return
        handler = process.spawn(self._serve(process, call), call.name)
        handler.add_done_callback(lambda _: self._end(call, "" if process.alive else "connection reset"))
        call.handlers.append(handler)

    def _end(self, call: _Call, error: str) -> None:
        """End a request, whose caller gets an error if it has not been served."""
        self._requests -= 1
        if error:
            self.loop.call_later(_RESET_SECONDS, call.resolve, Reply(error=errors.Unavailable(error)))

    async def _serve(self, process: Process, call: _Call) -> None:
        await process.running()
        on_behalf_of.set(call.customer)
        deadline.set(call.expires_at)
        reply = await self._handle(process, call)
        await process.running()
        error = f" {reply.error.reason}" if reply.error else ""
        self.record(f"{call.name} at {process.name}{error}")
        self._served[call.path].set()
        match call.fate:
            case Fate.KILL_CALLEE:
                self.kill(process)
            case Fate.KILL_CALLER if call.source is not None:
                self.kill(call.source)
            case Fate.LOSE_REPLY:
                pass
            case Fate.DELAY_REPLY:
                self.loop.call_later(call.delay, call.resolve, reply)
            case _:
                self.loop.call_later(call.latency, call.resolve, reply)

    async def _handle(self, process: Process, call: _Call) -> Reply:
        refusal, handler = self.faults.refusals.get(call.path), process.handlers.get(call.path)
        if refusal is not None or handler is None:
            return Reply(error=refusal or errors.Unimplemented("no such method"))
        try:
            return await handler(call.request, call.metadata)
        except errors.DomainError as error:
            return Reply(error=error)
        except Exception as error:  # noqa: BLE001 - a server reports any other error as INTERNAL
            self.errors.append(f"{call.name}: {error!r}")
            return Reply(error=errors.Internal("internal error"))

    def _cancel_handlers(self, call: _Call) -> None:
        """Cancel the call where it is served, unless the message that says so is lost."""
        if call.fate is None:
            for handler in call.handlers:
                self.loop.call_later(call.latency, handler.cancel)


def _as_received(error: errors.DomainError) -> errors.DomainError:
    status = to_status(error)
    trailing = grpc.aio.Metadata(*(status.trailing_metadata or ()))
    return from_rpc_error(grpc.aio.AioRpcError(status.code, grpc.aio.Metadata(), trailing, status.details))
