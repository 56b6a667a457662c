"""A steady load on a running release: each round makes every service's smoke call and uses the employee API.

`python load.py SECONDS RATE [NAME...]` starts RATE rounds a second for SECONDS; with names, a round has the calls of
these services alone. Beside this script are the smoke modules of the services as `smoke_<name>.py`; addresses come from
<NAME>_ADDR variables and EMPLOYEE_API_URL. If there are EMAIL and PASSWORD, a round also adds a task of this employee.
Prints `started` after a first round without a failure, one line of JSON at the end, and exits with status 1 if a call
failed, or a task is lost or there twice.
"""

import asyncio
import collections
import http.client
import json
import os
import sys
import time
import urllib.request
import uuid
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator, Sequence
from functools import partial
from http.cookiejar import CookieJar, DefaultCookiePolicy
from importlib import import_module
from itertools import chain
from pathlib import Path
from typing import Any

import grpc

from chassis.errors import DomainError
from chassis.rpc.client import channel
from chassis.settings import Settings, load_one
from shop_smoke import SmokeCall, send

TIMEOUT_SECONDS = 15
WARM_UP_SECONDS = 60
# The objective of orders.
IN_TIME_SECONDS = 2.5


class Tally:
    """Records durations of calls by name, how many succeeded in time, and failures."""

    def __init__(self) -> None:
        self.seconds: dict[str, list[float]] = collections.defaultdict(list)
        self.in_time = 0
        self.failed: collections.Counter[str] = collections.Counter()

    async def watch(self, name: str, call: Awaitable[object]) -> None:
        """Await a call and record its outcome."""
        started = time.perf_counter()
        try:
            await call
            self.in_time += time.perf_counter() - started < IN_TIME_SECONDS
        except (DomainError, OSError, http.client.HTTPException) as error:
            self.failed[f"{name}: {type(error).__name__} {error}"] += 1
            print(f"{time.time():.3f} {name}: {type(error).__name__} {error}", flush=True)  # noqa: T201
        self.seconds[name].append(time.perf_counter() - started)

    def summary(self) -> dict[str, object]:
        """Return all figures, durations in milliseconds."""
        ordered = sorted(chain.from_iterable(self.seconds.values()))
        return {
            "calls": len(ordered),
            "failed": dict(self.failed),
            "in_time": round(self.in_time / len(ordered), 4),
            "p50_ms": round(ordered[len(ordered) // 2] * 1000, 1),
            "p99_ms": round(ordered[len(ordered) * 99 // 100] * 1000, 1),
            "slowest_ms": {name: round(max(seconds) * 1000) for name, seconds in sorted(self.seconds.items())},
        }


class Employee:
    """A client of the employee API, which keeps its session."""

    def __init__(self) -> None:
        self._url = os.environ.get("EMPLOYEE_API_URL", "")
        policy = DefaultCookiePolicy(secure_protocols=("https", "http"))
        self._opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor(CookieJar(policy)))
        self.signed_in = False
        self.added: set[str] = set()

    def send(self, method: str, path: str, body: Any = None, key: str = "") -> Any:
        """Return the body of the response. Raise OSError or HTTPException without one, or with a status of errors."""
        data = None if body is None else json.dumps(body).encode()
        headers = {"Content-Type": "application/json", **({"Idempotency-Key": key} if key else {})}
        request = urllib.request.Request(self._url + path, data, headers, method=method)  # noqa: S310 - it is ours
        with self._opener.open(request, timeout=TIMEOUT_SECONDS) as response:
            return json.load(response)

    def work(self) -> None:
        """List the users; with a login also add, read and change a task."""
        if email := os.environ.get("EMAIL"):
            if not self.signed_in:
                self.send("POST", "/api/auth/login", {"email": email, "password": os.environ["PASSWORD"]})
                self.signed_in = True
            title = new_key()
            path = f"/api/tasks/{self.send('POST', '/api/tasks', {'title': title}, key=title)['id']}"
            self.added.add(title)
            self.send("GET", path)
            self.send("PATCH", path, {"status": "done"})
        self.send("GET", "/api/auth/users")

    def wrong_tasks(self) -> dict[str, list[str]]:
        """Return the titles of added tasks that are lost, and of tasks that are there twice."""
        listed: collections.Counter[str] = collections.Counter()
        cursor: str | None = ""
        while self.added and cursor is not None:
            page = self.send("GET", f"/api/tasks?limit=200{cursor and f'&cursor={cursor}'}")
            listed.update(task["title"] for task in page["items"])
            cursor = page["next"]
        doubled = [title for title, count in listed.items() if count > 1]
        return {"lost": sorted(self.added - set(listed)), "doubled": doubled}


class Shop:
    """The smoke calls of services, by default of all, over channels that retry as the services' own channels do.

    Attributes:
        makers: of smoke calls by the names of their files.
        channels: by the full names of services.
        employee: who uses the employee API.
    """

    def __init__(self, names: Sequence[str] = ()) -> None:
        self._names = names
        self.makers: dict[str, Callable[[str], SmokeCall]] = {
            path.stem.removeprefix("smoke_"): import_module(path.stem).smoke_call
            for path in sorted(Path(__file__).parent.glob("smoke_*.py"))
        }
        calls = {name: make("") for name, make in self.makers.items()}
        retryable = collections.defaultdict(set)
        for call in _with_setup(calls.values()):
            retryable[call.service].add(call.method.rpartition("/")[2])
        certificates, balancing = (load_one(Settings, name) for name in ("tls_folder", "balancing"))
        self.channels: dict[str, grpc.aio.Channel] = {
            call.service: channel(
                os.environ[f"{name.upper()}_ADDR"],
                call.service,
                timeout_seconds=TIMEOUT_SECONDS,
                retryable=sorted(retryable[call.service]),
                certificates=certificates,
                balancing=balancing,
            )
            for name, call in calls.items()
        }
        self.employee = Employee()

    async def send(self, name: str, unique: str) -> bytes:
        """Make the smoke call of a service, with the calls before it, under one key."""
        return await send(self.makers[name](unique), self.channels, key=unique)

    async def make_round(self, tally: Tally) -> None:
        """Make all calls concurrently."""
        async with asyncio.TaskGroup() as tasks:
            for name in self._names or (*self.makers, "employee-api"):
                call = asyncio.to_thread(self.employee.work) if name == "employee-api" else self.send(name, new_key())
                tasks.create_task(tally.watch(name, call))

    async def warm_up(self) -> None:
        """Repeat rounds until one succeeds, because network policies take a moment to admit a new pod."""
        deadline = time.monotonic() + WARM_UP_SECONDS
        while True:
            tally = Tally()
            await self.make_round(tally)
            if not tally.failed:
                return
            if time.monotonic() > deadline:
                raise TimeoutError(f"no round succeeded within {WARM_UP_SECONDS} s")
            await asyncio.sleep(1)


def new_key() -> str:
    return uuid.uuid4().hex


def _with_setup(calls: Iterable[SmokeCall]) -> Iterator[SmokeCall]:
    for call in calls:
        yield call
        yield from _with_setup(call.setup)


async def at_rate(number: int, rate: float, start: Callable[[], Coroutine[Any, Any, object]]) -> None:
    """Start a piece of work so many times, so often per second, however long each takes."""
    started = time.monotonic()
    async with asyncio.TaskGroup() as tasks:
        for count in range(1, number + 1):
            tasks.create_task(start())
            await asyncio.sleep(max(0.0, started + count / rate - time.monotonic()))


async def main(seconds: float, rate: float, names: Sequence[str]) -> int:
    """Start rounds at a steady rate; return 0 when every call succeeded."""
    shop, tally = Shop(names), Tally()
    await shop.warm_up()
    print("started", flush=True)  # noqa: T201
    await at_rate(int(seconds * rate), rate, partial(shop.make_round, tally))
    wrong = shop.employee.wrong_tasks()
    print(json.dumps({**tally.summary(), **wrong}), flush=True)  # noqa: T201
    return 1 if tally.failed or any(wrong.values()) else 0


if __name__ == "__main__":
    sys.exit(asyncio.run(main(float(sys.argv[1]), float(sys.argv[2]), sys.argv[3:])))
