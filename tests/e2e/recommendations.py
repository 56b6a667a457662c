"""Counts which version of the recommendation answers: `python recommendations.py CALLS RATE [VERSION [ADDRESS]]`.

Makes CALLS calls at this RATE to ADDRESS (RECOMMENDATION_ADDR), with VERSION in the header of testers if there is one.
Beside this script is load.py with what it needs. Prints `started` as soon as calls are answered, or refused by
policies; at the end a line of JSON: answered and slow calls by version, failed ones by reason.
"""

import asyncio
import json
import os
import sys
import time
from collections import Counter
from functools import partial
from typing import Any

from load import WARM_UP_SECONDS, Shop, at_rate, new_key

from chassis.errors import DomainError
from shop.recommendation_pb2_grpc import RecommendationServiceStub

SLOW_SECONDS = 0.25
TIMEOUT_SECONDS = 5

answered: Counter[str] = Counter()
failed: Counter[str] = Counter()
slow: Counter[str] = Counter()


async def call(shop: Shop, version: str) -> None:
    """Make a call and count its outcome."""
    started = time.perf_counter()
    stub: Any = RecommendationServiceStub(shop.channels["shop.RecommendationService"])
    metadata = (("shop-version", version),) if version else ()
    request = shop.makers["recommendation"](new_key()).request
    made = stub.ListRecommendations(request, timeout=TIMEOUT_SECONDS, metadata=metadata)
    try:
        await made
    except DomainError as error:
        failed[f"{type(error).__name__} {error}"] += 1
        return
    name = dict(await made.trailing_metadata()).get("recommendation-version", "unnamed")
    answered[name] += 1
    slow[name] += time.perf_counter() - started > SLOW_SECONDS


async def main(calls: int, rate: float, version: str = "", address: str = "") -> None:
    """Make the calls, however long they take."""
    if address:
        os.environ["RECOMMENDATION_ADDR"] = address
    shop = Shop()
    async with asyncio.timeout(WARM_UP_SECONDS):  # network policies take a moment to admit a new pod
        while not answered and not any("RBAC: access denied" in reason for reason in failed):
            await call(shop, version)
            await asyncio.sleep(0.5)
    for counts in (answered, failed, slow):
        counts.clear()
    print("started", flush=True)  # noqa: T201
    await at_rate(calls, rate, partial(call, shop, version))
    print(json.dumps({"answered": answered, "failed": failed, "slow": +slow}), flush=True)  # noqa: T201


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]), float(sys.argv[2]), *sys.argv[3:]))
