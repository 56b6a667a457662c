"""Failpoints: named places in the code where a process dies, or one of its tasks hangs, waits, fails or takes too much.

Tests enable them by the environment: `FAILPOINTS="payment.charge.after=kill"`. Entries are separated by commas;
`=error*2` acts the first two times only, and `=stall:1.5` waits for 1.5 seconds. A failpoint that is not enabled costs
a look at an empty dictionary. Every method of a service is one that acts before its handler, and costs nothing unless
enabled: `FAILPOINTS="shop.AdService/GetAds=stall:0.5"`.

With LAB=1 `shop.internal.Failpoints`, which describes all actions, enables them in a running process.
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
# Its multiples, without their whole parts, are evenly spread, and in step with no pattern of calls.
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
    """What happens at one place, until `ended` is set. Raises ValueError for a malformed specification."""

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
        """Perform the action if this call is one of those that it affects."""
        self._calls += 1
        if not self._left or self._calls * _GOLDEN_RATIO % 1 >= self._share:
            return
        self._left -= 1  # before the action, so that concurrent calls do not act too often
        match self._action:
            case "kill":  # no exception or exit: a crash runs no cleanup
                os.kill(os.getpid(), signal.SIGKILL)
            case "hang":  # until the task is cancelled, as by the caller's deadline
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
                    self._leaked += b"\x01" * (int(self._argument) * 2**20)  # for zeros the system would store nothing
            case _ if self._argument:  # logged without a traceback, which would show this code
                raise _KINDS[self._argument](message=self._argument.lower().replace("_", " "))
            case _:
                raise FailpointReached(self.name)


class Failpoints:
    """The enabled failpoints, at first those in the value of FAILPOINTS. Raises ValueError for a malformed value.

    Attributes:
        changeable: whether others may be enabled later.
        methods: the names of all methods in this process.
        enabled: failpoints by their identifiers, which are the names of those in FAILPOINTS.
        expiries: the ends of those that were enabled later.
    """

    def __init__(self, specification: str = "") -> None:
        self.changeable = False
        self.methods: set[str] = set()
        parsed = map(Failpoint, filter(None, specification.split(",")))
        self.enabled = {failpoint.name: failpoint for failpoint in parsed}
        self.expiries: dict[str, asyncio.TimerHandle] = {}

    async def reach(self, name: str) -> None:
        """Perform the actions that are enabled for this failpoint, if any."""
        for failpoint in tuple(self.enabled.values()):  # others may be enabled, or end, while one waits
            if failpoint.name == name:
                await failpoint.reach()

    def enable(self, identifier: str, specification: str, seconds: float) -> None:
        """Enable a failpoint for so long, instead of the one with this identifier if there is one. Raise ValueError."""
        failpoint = Failpoint(specification)
        if "/" in failpoint.name and failpoint.name not in self.methods:
            raise ValueError("this process has no such method")
        self.end(identifier)
        self.enabled[identifier] = failpoint
        self.expiries[identifier] = asyncio.get_running_loop().call_later(seconds, self.end, identifier)

    def end(self, identifier: str) -> None:
        """End a failpoint that was enabled later, and the waits in it. Do nothing if there is none."""
        if expiry := self.expiries.pop(identifier, None):
            expiry.cancel()
            self.enabled.pop(identifier).ended.set()
