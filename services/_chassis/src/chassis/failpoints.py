"""Named points where a test makes the process die, hang or fail: FAILPOINTS="payment.charge.after=kill".

Several are separated by commas; `=error*2` acts the first two times only. Unset, as everywhere but in tests, a point
costs one dictionary lookup.
"""

import asyncio
import os
import signal
from collections.abc import Awaitable, Callable
from typing import Literal, cast, get_args

Action = Literal["kill", "hang", "error"]

_ALWAYS = 1_000_000


class FailpointReached(Exception):
    """The error that a failpoint raises: deliberately no DomainError, so that it takes the way of a bug."""


class Failpoints:
    """The points that are switched on, from the text of FAILPOINTS; raises ValueError when it has another form."""

    def __init__(self, specification: str = "") -> None:
        self._actions: dict[str, Action] = {}
        self._left: dict[str, int] = {}
        for entry in filter(None, specification.split(",")):
            name, _, action = entry.strip().partition("=")
            action, _, times = action.partition("*")
            if not name or action not in get_args(Action) or not (times or "1").isdecimal():
                raise ValueError(f"a failpoint is name=kill|hang|error, perhaps with *times, not {entry!r}")
            self._actions[name] = cast("Action", action)
            self._left[name] = int(times or _ALWAYS)

    async def reach(self, name: str) -> None:
        """Do what the point is set to: nothing, most of the time."""
        if name not in self._actions or not self._left[name]:
            return
        self._left[name] -= 1
        await _ACT[self._actions[name]](name)


async def _kill(_name: str) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


async def _hang(_name: str) -> None:
    await asyncio.Event().wait()


async def _error(name: str) -> None:
    raise FailpointReached(name)


_ACT: dict[Action, Callable[[str], Awaitable[None]]] = {"kill": _kill, "hang": _hang, "error": _error}
