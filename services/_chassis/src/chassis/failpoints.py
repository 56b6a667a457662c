"""Failpoints: named places in the code where a process dies, or one of its tasks hangs, waits, fails or takes too much.

Tests enable them by the environment: `FAILPOINTS="payment.charge.after=kill"`. Entries are separated by commas;
`=error*2` acts the first two times only, and `=stall:1.5` waits for 1.5 seconds. A failpoint that is not enabled costs
a look at an empty dictionary. Every method of a service is one that acts before its handler, and costs nothing unless
enabled: `FAILPOINTS="shop.AdService/GetAds=stall:0.5"`.

With LAB=1 `shop.internal.Failpoints` enables them in a running process, each for a limited time.
"""

import asyncio
import os
import re
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial

_ALWAYS = 1_000_000
_MAX_LEAK_BYTES = 2**30
# Multiples of it, without their whole parts, are evenly spread, and in step with no pattern of calls.
_GOLDEN_RATIO = 0.6180339887498949
_ENTRY = re.compile(r"(?P<name>[^=]+)=(?P<action>kill|hang|error|stall:(?P<seconds>\d+(\.\d+)?))(\*(?P<times>\d+))?")


class FailpointReached(Exception):
    """Raised by a failpoint. Not a DomainError, so that it is handled like a bug."""


@dataclass
class Failpoint:
    """What happens at one place.

    Attributes:
        action: `kill`, or a field of the message `Failpoint` for the same.
        value: of that field: seconds, or bytes.
        share: of the calls that it affects.
        times: how often it acts.
        error: makes what it raises.
        expiry: its end, None for a failpoint of the environment.
    """

    name: str
    action: str
    value: float | str = 0.0
    share: float = 1.0
    times: int = _ALWAYS
    error: Callable[[], Exception] = FailpointReached
    expiry: asyncio.TimerHandle | None = None
    ended: asyncio.Event = field(default_factory=asyncio.Event)
    _calls: int = 0
    _leaked: list[bytes] = field(default_factory=list)

    async def reach(self) -> None:
        """Perform the action if this call is one of those that it affects."""
        self._calls += 1
        if not self.times or self._calls * _GOLDEN_RATIO % 1 >= self.share:
            return
        self.times -= 1  # before the action, so that concurrent calls do not act too often
        match self.action:
            case "kill":  # no exception or exit: a crash runs no cleanup
                os.kill(os.getpid(), signal.SIGKILL)
            case "hang":  # until the task is cancelled, as by the caller's deadline
                await self.ended.wait()
            case "delay_seconds":
                with suppress(TimeoutError):
                    await asyncio.wait_for(self.ended.wait(), float(self.value))
            case "burn_seconds":
                _burn(float(self.value))
            case "leak_bytes":
                self._leak(int(self.value))
            case _:
                raise self.error()

    def _leak(self, size: int) -> None:
        if (len(self._leaked) + 1) * size <= _MAX_LEAK_BYTES:
            self._leaked.append(b"\x01" * size)  # of zeros the system would store nothing


def _burn(seconds: float) -> None:
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        pass


class Failpoints:
    """The enabled failpoints, at first those in the value of FAILPOINTS. Raises ValueError for a malformed value.

    Attributes:
        changeable: whether others may be enabled later.
        places: names of places in this process that can be enabled later.
    """

    def __init__(self, specification: str = "") -> None:
        self.changeable = False
        self.places: set[str] = set()
        self._enabled: dict[str, Failpoint] = {}
        for text in filter(None, specification.split(",")):
            entry = _ENTRY.fullmatch(text.strip())
            if entry is None:
                raise ValueError(
                    f"a failpoint is name=kill|hang|error|stall:seconds, optionally followed by *times, not {text!r}"
                )
            name, action, seconds, times = entry["name"], entry["action"], entry["seconds"], entry["times"]
            self._enabled[name] = Failpoint(
                name,
                "delay_seconds" if seconds else action,
                float(seconds or 0),
                error=partial(FailpointReached, name),
                times=int(times or _ALWAYS),
            )

    def may_act(self, name: str) -> bool:
        return self.changeable or name in self._enabled

    async def reach(self, name: str) -> None:
        """Perform the actions that are enabled for this failpoint, if any."""
        # A new list: others may be enabled, or end, while one waits.
        for failpoint in [found for found in self._enabled.values() if found.name == name]:
            await failpoint.reach()

    def enable(self, identifier: str, failpoint: Failpoint, seconds: float) -> None:
        """Enable a failpoint for so long, instead of the one with this identifier if there is one."""
        self.end(identifier)
        failpoint.expiry = asyncio.get_running_loop().call_later(seconds, self.end, identifier)
        self._enabled[identifier] = failpoint

    def end(self, identifier: str) -> None:
        """End a failpoint of a limited time, and the waits in it. Do nothing if there is none."""
        if identifier in (limited := self.limited()):
            failpoint, expiry = limited[identifier]
            del self._enabled[identifier]
            expiry.cancel()
            failpoint.ended.set()

    def limited(self) -> dict[str, tuple[Failpoint, asyncio.TimerHandle]]:
        """Return the failpoints of a limited time by their identifiers, each with its end."""
        return {key: (found, found.expiry) for key, found in self._enabled.items() if found.expiry}
