"""Failpoints: named places in the code where tests can kill the process, or make a task hang, wait, fail or burn CPU.

Tests set `FAILPOINTS="checkout.charge.after=kill"`, for example. `=error*2` fails only the first two calls, and
`=stall:1.5` waits 1.5 seconds. Every service method also has two failpoints, one before its handler, such as
`shop.AdService/GetAds`, and one after the handler has succeeded: `shop.AdService/GetAds.after`. With LAB=1, clients can
enable failpoints at run time through `shop.internal.Failpoints`, whose .proto file lists all actions.
"""

import asyncio
import os
import re
import signal
import time
from contextlib import suppress

from chassis.errors import KINDS

_ALWAYS = 1_000_000
_MAX_LEAK_BYTES = 2**30
# Multiples of the golden ratio, modulo 1, are evenly distributed. `%percent` uses them to spread the selected calls.
_GOLDEN_RATIO = 0.6180339887498949
_SYNTAX = "name=kill|hang|error|error:CODE|stall:seconds|burn:seconds|leak:MiB, optionally with %percent, *times"
_ENTRY = re.compile(
    r"(?P<name>[^=]+)="
    rf"(?P<action>kill|hang|error(:({'|'.join(KINDS)}))?|stall:\d{{1,3}}(\.\d+)?|burn:\d(\.\d+)?|leak:\d\d?)"
    r"(%(?P<percent>[1-9]\d?))?(\*(?P<times>\d+))?"
)


class FailpointReached(Exception):
    """Raised by an `error` failpoint without a code. Servers treat it as a bug, because it isn't a DomainError."""


class Failpoint:
    """A failpoint. Raises ValueError if the specification is malformed. Setting `ended` releases all waiting calls."""

    def __init__(self, specification: str) -> None:
        entry = _ENTRY.fullmatch(specification.strip())
        if entry is None:
            raise ValueError(f"a failpoint is {_SYNTAX}, not {specification!r}")
        self.specification, self.name, self.ended = specification, entry["name"], asyncio.Event()
        self._action, _, self._argument = str(entry["action"]).partition(":")
        self._share = int(entry["percent"] or 100) / 100
        self._left = int(entry["times"] or _ALWAYS)
        self._calls = 0
        self._leaked = bytearray()

    async def reach(self) -> None:
        """Perform the action, unless `%percent` or `*times` excludes this call."""
        self._calls += 1
        if not self._left or self._calls * _GOLDEN_RATIO % 1 >= self._share:
            return
        self._left -= 1  # count the call before acting, or concurrent calls could exceed `times`
        match self._action:
            case "kill":  # use SIGKILL, because a real crash runs no cleanup code
                os.kill(os.getpid(), signal.SIGKILL)
            case "hang":
                await self.ended.wait()
            case "stall":
                with suppress(TimeoutError):
                    async with asyncio.timeout(float(self._argument)):
                        await self.ended.wait()
            case "burn":
                end = time.thread_time() + float(self._argument)
                while time.thread_time() < end:
                    pass
            case "leak":
                if len(self._leaked) < _MAX_LEAK_BYTES:
                    self._leaked += b"\x01" * (int(self._argument) * 2**20)  # zeros would use no physical memory
            case _ if self._argument:  # the message doesn't name the failpoint, so this looks like a real failure
                raise KINDS[self._argument](message=self._argument.lower().replace("_", " "))
            case _:
                raise FailpointReached(self.name)


class Failpoints:
    """The enabled failpoints: at first, those listed in FAILPOINTS. A malformed list raises ValueError."""

    def __init__(self, specification: str = "") -> None:
        self.changeable = False  # whether failpoints may be enabled at run time
        self.methods: set[str] = set()  # the names of the failpoints around service methods
        parsed = map(Failpoint, filter(None, specification.split(",")))
        self.enabled = {failpoint.name: failpoint for failpoint in parsed}  # maps identifiers to failpoints
        self.expiries: dict[str, asyncio.TimerHandle] = {}  # the timers that end failpoints enabled at run time

    async def reach(self, name: str) -> None:
        for failpoint in tuple(self.enabled.values()):  # copy them: other tasks may add or end failpoints
            if failpoint.name == name:
                await failpoint.reach()

    def enable(self, identifier: str, specification: str, seconds: float) -> None:
        """Enable a failpoint for `seconds`, replacing any with this identifier. Raise ValueError if it is invalid."""
        failpoint = Failpoint(specification)
        if "/" in failpoint.name and failpoint.name not in self.methods:
            raise ValueError("this process has no such method")
        self.end(identifier)
        self.enabled[identifier] = failpoint
        self.expiries[identifier] = asyncio.get_running_loop().call_later(seconds, self.end, identifier)

    def end(self, identifier: str) -> None:
        """End a failpoint that was enabled at run time, and release all calls waiting at it."""
        if expiry := self.expiries.pop(identifier, None):
            expiry.cancel()
            self.enabled.pop(identifier).ended.set()
