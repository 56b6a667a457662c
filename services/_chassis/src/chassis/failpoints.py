"""Failpoints: named places in the code where a process dies, or a task hangs, waits, fails or uses up CPU or memory.

Tests enable them in the environment: `FAILPOINTS="payment.charge.after=kill"`. Entries are separated by commas;
`=error*2` acts only the first two times, and `=stall:1.5` waits for 1.5 seconds. Every method of a service is a
failpoint, too, which acts before its handler: `FAILPOINTS="shop.AdService/GetAds=stall:0.5"`.

`shop.internal.Failpoints`, served with LAB=1, describes all actions and enables them in a running process.
"""

import asyncio
import os
import re
import signal
import time
from contextlib import suppress

from chassis.errors import DomainError

_ALWAYS = 1_000_000
_MAX_LEAK_BYTES = 2**30
# Its multiples modulo 1 are spread evenly and never repeat, so they don't line up with a pattern of calls.
_GOLDEN_RATIO = 0.6180339887498949
_KINDS = {kind.default_reason: kind for kind in DomainError.__subclasses__()}
_ENTRY = re.compile(
    r"(?P<name>[^=]+)="
    rf"(?P<action>kill|hang|error(:({'|'.join(_KINDS)}))?|stall:\d{{1,3}}(\.\d+)?|burn:\d(\.\d+)?|leak:\d\d?)"
    r"(%(?P<percent>[1-9]\d?))?(\*(?P<times>\d+))?"
)


class FailpointReached(Exception):
    """Raised by a failpoint. Not a DomainError, so that it is handled like a bug."""


class Failpoint:
    """The action at one place, until `ended` is set. Raises ValueError for a malformed specification."""

    def __init__(self, specification: str) -> None:
        entry = _ENTRY.fullmatch(specification.strip())
        if entry is None:
            syntax = (
                "name=kill|hang|error|error:CODE|stall:seconds|burn:seconds|leak:MiB, optionally with %percent, *times"
            )
            raise ValueError(f"a failpoint is {syntax}, not {specification!r}")
        self.specification, self.name, self.ended = specification, entry["name"], asyncio.Event()
        self._action, _, self._argument = str(entry["action"]).partition(":")
        self._share = int(entry["percent"] or 100) / 100
        self._left = int(entry["times"] or _ALWAYS)
        self._calls = 0
        self._leaked = bytearray()

    async def reach(self) -> None:
        """Perform the action if it affects this call."""
        self._calls += 1
        if not self._left or self._calls * _GOLDEN_RATIO % 1 >= self._share:
            return
        self._left -= 1  # before the action, so that concurrent calls can't exceed the number of times
        match self._action:
            case "kill":  # not an exception or exit: a crash runs no cleanup
                os.kill(os.getpid(), signal.SIGKILL)
            case "hang":  # until the task is cancelled, for example by the caller's deadline
                await self.ended.wait()
            case "stall":
                with suppress(TimeoutError):
                    await asyncio.wait_for(self.ended.wait(), float(self._argument))
            case "burn":
                end = time.thread_time() + float(self._argument)
                while time.thread_time() < end:
                    pass
            case "leak":
                if len(self._leaked) < _MAX_LEAK_BYTES:
                    self._leaked += b"\x01" * (int(self._argument) * 2**20)  # zeros would take no memory
            case _ if self._argument:  # a DomainError is logged without a traceback, which would show this code
                raise _KINDS[self._argument](message=self._argument.lower().replace("_", " "))
            case _:
                raise FailpointReached(self.name)


class Failpoints:
    """The enabled failpoints, initially those in the value of FAILPOINTS. Raises ValueError for a malformed value.

    Attributes:
        changeable: whether more may be enabled later.
        methods: names of all methods in this process.
        enabled: failpoints by identifier, which is the name for those in FAILPOINTS.
        expiries: when those that were enabled later end.
    """

    def __init__(self, specification: str = "") -> None:
        self.changeable = False
        self.methods: set[str] = set()
        parsed = map(Failpoint, filter(None, specification.split(",")))
        self.enabled = {failpoint.name: failpoint for failpoint in parsed}
        self.expiries: dict[str, asyncio.TimerHandle] = {}

    async def reach(self, name: str) -> None:
        """Perform the actions that are enabled at this failpoint."""
        for failpoint in tuple(self.enabled.values()):  # a copy: failpoints may be enabled or end while one waits
            if failpoint.name == name:
                await failpoint.reach()

    def enable(self, identifier: str, specification: str, seconds: float) -> None:
        """Enable a failpoint for this long, instead of one with the same identifier. Raise ValueError if malformed."""
        failpoint = Failpoint(specification)
        if "/" in failpoint.name and failpoint.name not in self.methods:
            raise ValueError("this process has no such method")
        self.end(identifier)
        self.enabled[identifier] = failpoint
        self.expiries[identifier] = asyncio.get_running_loop().call_later(seconds, self.end, identifier)

    def end(self, identifier: str) -> None:
        """End a failpoint that was enabled later, and the waits in it, if there is one."""
        if expiry := self.expiries.pop(identifier, None):
            expiry.cancel()
            self.enabled.pop(identifier).ended.set()
