"""Counts which version of the recommendation answers: `python recommendations.py CALLS RATE [VERSION]`.

Makes so many calls at this rate to RECOMMENDATION_ADDR, with VERSION in the header of testers if there is one. Beside
this script is the service's smoke module as `smoke_recommendation.py`. Prints `started` when a first call is answered,
and at the end a line of JSON: answered and slow calls by version, failed ones by reason. Exits 1 if a call failed.
"""

import asyncio
import json
import os
import sys
import time
import uuid
from collections import Counter
from importlib import import_module
from typing import Any

from chassis.errors import DomainError
from chassis.rpc.client import channel

SLOW_SECONDS = 0.25
TIMEOUT_SECONDS = 5
ADMITTED_WITHIN_SECONDS = 60

smoke_call = import_module("smoke_recommendation").smoke_call
answered: Counter[str] = Counter()
failed: Counter[str] = Counter()
slow: Counter[str] = Counter()


async def call(method: Any, version: str) -> None:
    """Make a call and count its outcome."""
    started = time.perf_counter()
    made = method(smoke_call(uuid.uuid4().hex).request, metadata=(("shop-version", version),) if version else ())
    try:
        await made
    except DomainError as error:
        failed[f"{type(error).__name__} {error}"] += 1
        return
    name = dict(await made.trailing_metadata()).get("recommendation-version", "unnamed")
    answered[name] += 1
    slow[name] += time.perf_counter() - started > SLOW_SECONDS


async def main(calls: int, rate: float, version: str) -> int:
    """Make the calls, however long they take; return 0 when all were answered."""
    first = smoke_call("")
    opened = channel(os.environ["RECOMMENDATION_ADDR"], first.service, timeout_seconds=TIMEOUT_SECONDS)
    method = opened.unary_unary(f"/{first.method}", type(first.request).SerializeToString, bytes)
    async with asyncio.timeout(ADMITTED_WITHIN_SECONDS):  # network policies take a moment to admit a new pod
        while not answered:
            await call(method, version)
            await asyncio.sleep(0.5)
    for counts in (answered, failed, slow):
        counts.clear()
    print("started", flush=True)  # noqa: T201
    started = time.monotonic()
    async with asyncio.TaskGroup() as tasks:
        for number in range(calls):
            tasks.create_task(call(method, version))
            await asyncio.sleep(max(0.0, started + (number + 1) / rate - time.monotonic()))
    print(json.dumps({"answered": answered, "failed": failed, "slow": +slow}), flush=True)  # noqa: T201
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(asyncio.run(main(int(sys.argv[1]), float(sys.argv[2]), "".join(sys.argv[3:]))))
