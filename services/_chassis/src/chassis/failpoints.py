"""Failpoints: named places in the code where a test makes the process die, or one task of it hang, wait or fail.

Tests enable them by the environment: `FAILPOINTS="payment.charge.after=kill"`. Entries are separated by commas;
`=error*2` acts the first two times only, and `=stall:1.5` waits for 1.5 seconds. A failpoint that is not enabled costs
one dictionary lookup. Every method of a service is one that acts before its handler, and costs nothing unless enabled:
`FAILPOINTS="shop.AdService/GetAds=stall:0.5"`.
"""

import asyncio
import os
import re
import signal
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TypeAlias

_Action: TypeAlias = Callable[[str], Awaitable[None]]

_ALWAYS = 1_000_000
_ENTRY = re.compile(r"(?P<name>[^=]+)=(?P<action>kill|hang|error|stall:(?P<seconds>\d+(\.\d+)?))(\*(?P<times>\d+))?")


class FailpointReached(Exception):
    """Raised by a failpoint. Not a DomainError, so that it is handled like a bug."""


class Failpoints:
    """The enabled failpoints, parsed from the value of FAILPOINTS. Raises ValueError for a malformed value."""

    def __init__(self, specification: str = "") -> None:
        self._actions: dict[str, _Action] = {}
        self._left: dict[str, int] = {}
        for text in filter(None, specification.split(",")):
            entry = _ENTRY.fullmatch(text.strip())
            if entry is None:
                raise ValueError(
                    f"a failpoint is name=kill|hang|error|stall:seconds, optionally followed by *times, not {text!r}"
                )
            seconds = entry["seconds"]
            self._actions[entry["name"]] = partial(_stall, float(seconds)) if seconds else _ACTIONS[entry["action"]]
            self._left[entry["name"]] = int(entry["times"] or _ALWAYS)

    def __contains__(self, name: str) -> bool:
        return name in self._actions

    async def reach(self, name: str) -> None:
        """Perform the action that is enabled for this failpoint, if any."""
        if name not in self._actions or not self._left[name]:
            return
        self._left[name] -= 1  # before the action, so that concurrent calls do not act too often
        await self._actions[name](name)


async def _kill(_name: str) -> None:
    # No exception or exit: a crash runs no cleanup.
    os.kill(os.getpid(), signal.SIGKILL)


async def _hang(_name: str) -> None:
    await asyncio.Event().wait()  # until the task is cancelled, as by the caller's deadline


async def _error(name: str) -> None:
    raise FailpointReached(name)


async def _stall(seconds: float, _name: str) -> None:
    await asyncio.sleep(seconds)


_ACTIONS: dict[str, _Action] = {"kill": _kill, "hang": _hang, "error": _error}
