import asyncio
import math
import sys
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass

import httpx2
import pytest

from shop_cli.local.ports import reserved
from shop_kit.fake_storefront import FakeStorefront, serving
from shop_kit.load_runs import LoadRun, figures_until, finish_load, run_load, start_load
from shop_kit.waiting import wait_until

# With this seed and 40 sources, the first ten customers include all kinds: two double clickers and two impatient ones.
SEED = 2142
RATE = 40


@dataclass(frozen=True, slots=True)
class Visited:
    """A shop after visits by customers of all kinds."""

    shop: FakeStorefront
    run: LoadRun


@pytest.fixture(scope="module")
def visited() -> Visited:
    async def visit() -> Visited:
        async with serving(FakeStorefront()) as storefront:
            # Only customers who have submitted a form twice open the list of their orders.
            return Visited(storefront, await run_until(storefront, lambda: storefront.paths["GET /orders"] >= 4))

    return asyncio.run(visit())


@pytest.fixture
async def shop() -> AsyncIterator[FakeStorefront]:
    async with serving(FakeStorefront()) as storefront:
        yield storefront


async def run_until(shop: FakeStorefront, condition: Callable[[], object]) -> LoadRun:
    """Send customers until a condition holds, then stop the run with a signal."""
    process = await start_load(shop.url, rate=RATE, seed=SEED)
    await wait_until(condition)
    process.terminate()
    return await finish_load(process)


async def run_script(script: str) -> list[str]:
    """Run a script in another process, because Locust patches the standard library. Return the lines that it prints."""
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", script, stdout=asyncio.subprocess.PIPE)
    output, _ = await process.communicate()
    return output.decode().splitlines()


def test_orders_and_repeats_are_counted_as_the_shop_does(visited: Visited) -> None:
    """An impatient customer orders without seeing the order's page if the run ends between hanging up and retrying."""
    summary = visited.run.summary
    impatient = summary["personas"]["impatient"]
    assert 0 < summary["orders"] <= visited.shop.placed <= summary["orders"] + impatient
    without_order = visited.shop.paths["POST /orders"] - visited.shop.placed
    assert 0 < summary["repeats"] <= without_order + impatient


def test_every_request_is_marked_as_synthetic(visited: Visited) -> None:
    assert {headers.get("baggage") for headers in visited.shop.headers} == {"synthetic_request=true"}


def test_a_form_is_posted_as_from_a_page_of_the_same_origin(visited: Visited) -> None:
    posts = [headers for headers in visited.shop.headers if headers.get("content-length", "0") != "0"]
    origins = {(headers["origin"], headers["sec-fetch-site"]) for headers in posts}
    assert origins == {(visited.shop.url, "same-origin")}


async def test_what_a_person_would_notice_is_an_error_with_its_page_and_reason(shop: FakeStorefront) -> None:
    """If the shop ignores idempotency keys, a form submitted twice leads to two orders."""
    shop.forgets_keys, shop.broken = True, "/categories/kitchen"

    def noticed() -> bool:
        twice = {user for user, orders in shop.orders.items() if len(orders) > 1}
        return len(twice) >= 4 and bool(shop.paths["GET /orders"]) and bool(shop.paths["GET /categories/kitchen"])

    finished = await run_until(shop, noticed)
    reasons = {(error["page"], error["reason"]) for error in finished.summary["errors"]}
    assert finished.status == 1
    assert reasons == {
        ("POST /orders", "a repeat led to another order"),
        ("GET /orders", "one checkout form led to several orders"),
        ("GET /categories/{name}", "HTTP 503"),
    }


async def test_a_shop_that_does_not_listen_is_reported() -> None:
    with reserved(1) as (port,):
        process = await start_load(f"http://127.0.0.1:{port}", rate=RATE, figures_seconds=0.1)
        await figures_until(process, lambda figures: figures["errors"])
        process.terminate()
        finished = await finish_load(process)
    (error,) = finished.summary["errors"]
    assert (finished.status, error["reason"]) == (1, "no answer: ConnectionRefusedError")


async def test_a_stall_delays_no_arrival_and_no_planned_request_is_left_out_or_counts_from_when_it_was_sent(
    shop: FakeStorefront,
) -> None:
    """In a closed loop, customers who wait for a response would send nothing in the meantime.

    Requests that were due before the end of the run are sent even after it. Otherwise, a shop that hangs at the end
    would look better than it is.
    """
    shop.stalled_until = math.inf
    process = await start_load(shop.url, rate=RATE, seed=SEED, think_seconds=0.1)
    await wait_until(lambda: len(shop.arrived) > RATE)
    assert set(shop.paths) == {"GET /"}
    process.terminate()
    await wait_until(lambda: time.monotonic() > shop.arrived[-1] + 1)  # no more customers arrive
    stalled_ms = (time.monotonic() - shop.arrived[0]) * 1000
    shop.stalled_until = 0
    summary = (await finish_load(process)).summary
    pages = {page["page"]: page["p99_ms"] for page in summary["pages"]}
    assert summary["requests"] > 2 * summary["sessions"]
    assert min(pages["GET /"], pages["GET /categories/{name}"], summary["p99_ms"]) > stalled_ms / 2


async def test_arrivals_above_the_limit_of_sessions_are_dropped_and_fail_the_run(shop: FakeStorefront) -> None:
    shop.stalled_until = math.inf
    process = await start_load(shop.url, rate=RATE, max_sessions=20, figures_seconds=0.2)
    figures = await figures_until(process, lambda figures: figures["dropped"] > 20)
    shop.stalled_until = 0
    process.terminate()
    finished = await finish_load(process)
    assert figures["in_flight"] == 20
    assert (finished.status, finished.summary["errors"]) == (1, [])
    assert finished.summary["dropped"] > 20


async def test_a_seed_repeats_the_sessions() -> None:
    script = """
from locust.env import Environment
from load_generator.customers import Customers
from load_generator.figures import Figures

personas = []
for seed in ("same", "same", "another"):
    environment = Environment(host="http://127.0.0.1:1")
    figures = Figures(environment)
    customers = Customers(environment, figures, seed=seed, think_seconds=0, max_sessions=100)
    customers.arrive(lambda generator, begin: [generator.random() / 1e6 for _ in range(50)])
    personas.append(figures.summary()["personas"])
print(personas[0] == personas[1] != personas[2])
"""
    assert "True" in await run_script(script)


async def test_counts_per_second_and_points_of_charts_are_deleted_in_a_long_run() -> None:
    script = """
import time
from locust.env import Environment
from load_generator.figures import Figures

environment, now = Environment(), int(time.time())
figures, stats = Figures(environment), environment.stats
for second in range(now - 7200, now):
    stats.get("/", "GET").num_reqs_per_sec[second] = stats.total.num_reqs_per_sec[second] = 1
    stats.history.append({})
figures.trim()
print(len(stats.get("/", "GET").num_reqs_per_sec) < 70, len(stats.total.num_reqs_per_sec) < 70, len(stats.history))
"""
    assert await run_script(script) == ["True True 720"]


async def test_an_invalid_setting_ends_the_start_with_its_name() -> None:
    finished = await run_load("shop.example", rate=0)
    assert finished.status == 2
    assert [line.partition(":")[0] for line in finished.errors.splitlines()] == ["STOREFRONT_URL", "RATE"]


async def test_workers_share_the_rate_and_the_master_has_the_figures_of_all(shop: FakeStorefront) -> None:
    with reserved(1) as (port,):
        master = await start_load(shop.url, rate=30, workers=2, master_port=port)
        workers = [await start_load(shop.url, rate=30, master_addr=f"127.0.0.1:{port}") for _ in range(2)]
        await wait_until(lambda: shop.paths["GET /"] > 100)
        master.terminate()
        finished, *others = [await finish_load(process) for process in (master, *workers)]
    assert [run.status for run in (finished, *others)] == [0, 0, 0]
    assert finished.summary["rate"] < 45  # it would be 60 if each worker had the whole rate
    redirecting = [path for path in shop.paths if path.startswith("POST ") and path != "POST /checkout"]
    followed = sum(shop.paths[path] for path in redirecting)
    assert finished.summary["requests"] == pytest.approx(len(shop.arrived) - followed, abs=20)


async def test_locusts_page_shows_the_figures_and_takes_changes_from_its_own_origin_alone(shop: FakeStorefront) -> None:
    site, mode = "sec-fetch-site", "sec-fetch-mode"
    with reserved(1) as (port,):
        here, rebound = f"127.0.0.1:{port}", f"rebound.example:{port}"
        process = await start_load(shop.url, rate=5, web_port=port)
        await wait_until(lambda: len(shop.arrived) > 20)
        async with httpx2.AsyncClient(base_url=f"http://{here}", trust_env=False, timeout=300) as client:

            async def get(path: str, headers: dict[str, str] | None = None) -> httpx2.Response:
                return await client.get(path, headers=headers)

            async def swarm(**headers: str) -> httpx2.Response:
                fields = {"user_count": "50", "spawn_rate": "50", "host": "http://127.0.0.1:9"}
                return await client.post("/swarm", data=fields, headers=headers)

            async def has_sources(number: int) -> bool:
                return bool((await get("/stats/requests")).json()["user_count"] == number)

            async def has_figures() -> bool:
                names = {(entry["method"], entry["name"]) for entry in (await get("/stats/requests")).json()["stats"]}
                return {("GET", "/"), ("session", "window shopper")} <= names

            await wait_until(has_figures)
            refused = [
                await get("/", {"host": rebound}),
                await swarm(host=rebound, origin=f"http://{rebound}"),
                await swarm(origin="https://evil.example"),
                await swarm(origin="null"),
                await swarm(origin=f"http://127.0.0.1:{port + 1}"),
                await get("/stats/requests", {"origin": "http://[::"}),
                await get("/stop", {site: "cross-site", mode: "navigate"}),
                await get("/stop", {site: "same-site"}),
            ]
            assert await has_sources(5)
            linked = await get("/", {site: "same-site", mode: "navigate"})
            own = await swarm(origin=f"http://{here}", **{site: "same-origin"})
            await wait_until(lambda: has_sources(50))
        visited = len(shop.arrived)
        await wait_until(lambda: len(shop.arrived) > visited + 50)
        process.terminate()
        finished = await finish_load(process)
    assert [response.status_code for response in refused] == [421, 421] + [403] * 6
    assert (linked.status_code, own.status_code, finished.errors) == (200, 200, "")
    assert finished.summary["errors"] == []  # customers did not visit the host in the request
    assert "<title>Locust" in linked.text
