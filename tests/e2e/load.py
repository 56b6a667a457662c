"""A steady load on a running release: each round makes every service's smoke call and lists employees.

`python load.py SECONDS RATE [NAME...]` starts RATE rounds a second for SECONDS; with names, a round has the calls of
these services alone. Beside this script are the smoke modules of the services as `smoke_<name>.py`; addresses come from
<NAME>_ADDR variables and EMPLOYEE_API_URL. Prints `started` after a first round without a failure, one line of JSON at
the end, and exits with status 1 if a call failed.
"""

import asyncio
import collections
import json
import os
import sys
import time
import urllib.request
import uuid
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from importlib import import_module
from pathlib import Path

import grpc

from chassis.errors import DomainError
from chassis.rpc.client import channel
from chassis.settings import Settings, load_one
from shop_smoke import SmokeCall, send

WARM_UP_SECONDS = 60
# The objective of orders.
IN_TIME_SECONDS = 2.5


class Tally:
    """Counts calls and failures, and records durations."""

    def __init__(self) -> None:
        self.calls = self.in_time = 0
        self.seconds: list[float] = []
        self.slowest: dict[str, float] = {}
        self.failed: collections.Counter[str] = collections.Counter()

    async def watch(self, name: str, call: Awaitable[object]) -> None:
        """Await a call and record its outcome."""
        self.calls += 1
        started = time.perf_counter()
        try:
            await call
        except (DomainError, OSError) as error:
            self.failed[f"{name}: {type(error).__name__} {error}"] += 1
            print(f"{time.time():.3f} {name}: {type(error).__name__} {error}", flush=True)  # noqa: T201
        else:
            self.in_time += time.perf_counter() - started < IN_TIME_SECONDS
        seconds = time.perf_counter() - started
        self.seconds.append(seconds)
        self.slowest[name] = max(seconds, self.slowest.get(name, 0.0))

    def summary(self) -> dict[str, object]:
        """Return all figures, durations in milliseconds."""
        ordered = sorted(self.seconds)
        return {
            "calls": self.calls,
            "failed": dict(self.failed),
            "in_time": round(self.in_time / self.calls, 4),
            "p50_ms": round(ordered[len(ordered) // 2] * 1000, 1),
            "p99_ms": round(ordered[len(ordered) * 99 // 100] * 1000, 1),
            "slowest_ms": {name: round(seconds * 1000) for name, seconds in sorted(self.slowest.items())},
        }


class Shop:
    """The smoke calls of services, by default of all, over channels that retry as the services' own channels do."""

    def __init__(self, folder: Path, names: Sequence[str]) -> None:
        self._names = names
        self._makers: dict[str, Callable[[str], SmokeCall]] = {
            path.stem.removeprefix("smoke_"): import_module(path.stem).smoke_call
            for path in sorted(folder.glob("smoke_*.py"))
        }
        calls = {name: make("") for name, make in self._makers.items()}
        retryable = collections.defaultdict(set)
        for call in _with_setup(calls.values()):
            retryable[call.service].add(call.method.rpartition("/")[2])
        certificates, balancing = (load_one(Settings, name) for name in ("tls_folder", "balancing"))
        self._channels: dict[str, grpc.aio.Channel] = {
            call.service: channel(
                os.environ[f"{name.upper()}_ADDR"],
                call.service,
                timeout_seconds=15,
                retryable=sorted(retryable[call.service]),
                certificates=certificates,
                balancing=balancing,
            )
            for name, call in calls.items()
        }

    async def make_round(self, tally: Tally) -> None:
        """Make all calls concurrently."""
        async with asyncio.TaskGroup() as tasks:
            for name in self._names or self._makers:
                unique = uuid.uuid4().hex
                tasks.create_task(tally.watch(name, send(self._makers[name](unique), self._channels, key=unique)))
            if not self._names:
                tasks.create_task(tally.watch("employee-api", asyncio.to_thread(list_employees)))


def _with_setup(calls: Iterable[SmokeCall]) -> Iterator[SmokeCall]:
    for call in calls:
        yield call
        yield from _with_setup(call.setup)


def list_employees() -> None:
    """List the users of the employee API. Raise OSError when that fails."""
    url = f"{os.environ['EMPLOYEE_API_URL']}/api/auth/users"
    with urllib.request.urlopen(url, timeout=15) as response:  # noqa: S310 - the address is ours
        response.read()


async def warm_up(shop: Shop) -> None:
    """Repeat rounds until one succeeds, because network policies take a moment to admit a new pod."""
    deadline = time.monotonic() + WARM_UP_SECONDS
    while True:
        tally = Tally()
        await shop.make_round(tally)
        if not tally.failed:
            return
        if time.monotonic() > deadline:
            raise TimeoutError(f"no round succeeded within {WARM_UP_SECONDS} s")
        await asyncio.sleep(1)


async def main(seconds: float, rate: float, names: Sequence[str]) -> int:
    """Start rounds at a steady rate, however long they take; return 0 when every call succeeded."""
    shop, tally = Shop(Path(__file__).parent, names), Tally()
    await warm_up(shop)
    print("started", flush=True)  # noqa: T201
    started = time.monotonic()
    async with asyncio.TaskGroup() as tasks:
        for number in range(int(seconds * rate)):
            tasks.create_task(shop.make_round(tally))
            await asyncio.sleep(max(0.0, started + (number + 1) / rate - time.monotonic()))
    print(json.dumps(tally.summary()), flush=True)  # noqa: T201
    return 1 if tally.failed else 0


if __name__ == "__main__":
    sys.exit(asyncio.run(main(float(sys.argv[1]), float(sys.argv[2]), sys.argv[3:])))
