"""Failpoints: named places in the code where a test makes the process die, hang or raise an error.

Tests enable them by the environment: `FAILPOINTS="payment.charge.after=kill"`. Entries are separated by commas;
`=error*2` acts the first two times only. A failpoint that is not enabled costs one dictionary lookup.
"""

import asyncio
import os
import signal
from collections.abc import Awaitable, Callable
from typing import Literal, cast, get_args

Action = Literal["kill", "hang", "error"]

_ALWAYS = 1_000_000


class FailpointReached(Exception):
    """Raised by a failpoint. Not a DomainError, so that it is handled like a bug."""


class Failpoints:
    """The enabled failpoints, parsed from the value of FAILPOINTS. Raises ValueError for a malformed value."""

    def __init__(self, specification: str = "") -> None:
        self._actions: dict[str, Action] = {}
        self._left: dict[str, int] = {}
        for entry in filter(None, specification.split(",")):
            name, _, action = entry.strip().partition("=")
            action, _, times = action.partition("*")
            if not name or action not in get_args(Action) or not (times or "1").isdecimal():
                raise ValueError(f"a failpoint is name=kill|hang|error, optionally followed by *times, not {entry!r}")
            self._actions[name] = cast("Action", action)
            self._left[name] = int(times or _ALWAYS)

    async def reach(self, name: str) -> None:
        """Perform the action that is enabled for this failpoint, if any."""
        if name not in self._actions or not self._left[name]:
            return
        self._left[name] -= 1
        await _ACTIONS[self._actions[name]](name)


async def _kill(_name: str) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


async def _hang(_name: str) -> None:
    await asyncio.Event().wait()


async def _error(name: str) -> None:
    raise FailpointReached(name)


_ACTIONS: dict[Action, Callable[[str], Awaitable[None]]] = {"kill": _kill, "hang": _hang, "error": _error}
