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

_ALWAYS = 1_000_000
_ENTRY = re.compile(r"(?P<name>[^=]+)=(?P<action>kill|hang|error|stall:(?P<seconds>\d+(\.\d+)?))(\*(?P<times>\d+))?")


class FailpointReached(Exception):
    """Raised by a failpoint. Not a DomainError, so that it is handled like a bug."""


class Failpoints:
    """The enabled failpoints, parsed from the value of FAILPOINTS. Raises ValueError for a malformed value."""

    def __init__(self, specification: str = "") -> None:
        self._enabled: dict[str, re.Match[str]] = {}
        self._left: dict[str, int] = {}
        for text in filter(None, specification.split(",")):
            entry = _ENTRY.fullmatch(text.strip())
            if entry is None:
                raise ValueError(
                    f"a failpoint is name=kill|hang|error|stall:seconds, optionally followed by *times, not {text!r}"
                )
            self._enabled[entry["name"]] = entry
            self._left[entry["name"]] = int(entry["times"] or _ALWAYS)

    def __contains__(self, name: str) -> bool:
        return name in self._enabled

    async def reach(self, name: str) -> None:
        """Perform the action that is enabled for this failpoint, if any."""
        if not self._left.get(name):
            return
        self._left[name] -= 1  # before the action, so that concurrent calls do not act too often
        match self._enabled[name]["action"]:
            case "kill":  # no exception or exit: a crash runs no cleanup
                os.kill(os.getpid(), signal.SIGKILL)
            case "hang":  # until the task is cancelled, as by the caller's deadline
                await asyncio.Event().wait()
            case "error":
                raise FailpointReached(name)
            case _:
                await asyncio.sleep(float(self._enabled[name]["seconds"]))
