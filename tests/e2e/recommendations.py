"""Counts which version of the recommendation answers: `python recommendations.py CALLS RATE [VERSION [ADDRESS]]`.

Makes CALLS calls at this RATE to ADDRESS (RECOMMENDATION_ADDR), with VERSION in the header of testers if there is one.
Beside this script is the service's smoke module as `smoke_recommendation.py`. Prints `started` as soon as calls are
answered, or refused by policies; at the end a line of JSON: answered and slow calls by version, failed ones by reason.
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
from chassis.settings import Settings, load_one

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


async def main(calls: int, rate: float, version: str = "", address: str = os.environ["RECOMMENDATION_ADDR"]) -> None:
    """Make the calls, however long they take."""
    first = smoke_call("")
    balancing = load_one(Settings, "balancing")
    opened = channel(address, first.service, timeout_seconds=TIMEOUT_SECONDS, balancing=balancing)
    method = opened.unary_unary(f"/{first.method}", type(first.request).SerializeToString, bytes)
    async with asyncio.timeout(ADMITTED_WITHIN_SECONDS):  # network policies take a moment to admit a new pod
        while not answered and not any("RBAC: access denied" in reason for reason in failed):
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


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]), float(sys.argv[2]), *sys.argv[3:]))
