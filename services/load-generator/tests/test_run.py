import asyncio
import json
import math
import sys
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass

import httpx2
import pytest

from shop_cli.local.ports import reserved
from shop_kit.fake_storefront import FakeStorefront, serving
from shop_kit.load_runs import LoadRun, finish_load, run_load, start_load
from shop_kit.waiting import wait_until


@dataclass(frozen=True, slots=True)
class Visited:
    """A shop after customers of all kinds were there for a while."""

    shop: FakeStorefront
    run: LoadRun


@pytest.fixture(scope="module")
def visited() -> Visited:
    async def visit() -> Visited:
        async with serving(FakeStorefront()) as storefront:
            return Visited(storefront, await run_load(storefront.url, rate=40, duration_seconds=4))

    return asyncio.run(visit())


@pytest.fixture
async def shop() -> AsyncIterator[FakeStorefront]:
    async with serving(FakeStorefront()) as storefront:
        yield storefront


def test_customers_of_all_kinds_walk_through_the_shop_without_errors(visited: Visited) -> None:
    summary = visited.run.summary
    kinds = {"window shopper", "buyer", "indecisive", "bargain hunter", "double clicker", "impatient"}
    assert (visited.run.status, visited.run.errors, summary["errors"]) == (0, "", [])
    assert set(summary["personas"]) == kinds


def test_orders_are_counted_as_the_shop_does(visited: Visited) -> None:
    """Sessions that the end of the run cut off may have ordered without seeing it."""
    orders = visited.run.summary["orders"]
    assert 0 < orders <= visited.shop.placed <= orders + 5


def test_repeats_are_the_requests_that_place_no_order(visited: Visited) -> None:
    without_order = visited.shop.paths["POST /orders"] - visited.shop.placed
    assert 0 < visited.run.summary["repeats"] <= without_order + 5


def test_every_request_is_marked_as_synthetic(visited: Visited) -> None:
    assert {headers.get("baggage") for headers in visited.shop.headers} == {"synthetic_request=true"}


def test_a_form_is_posted_as_from_a_page_of_the_same_origin(visited: Visited) -> None:
    posts = [headers for headers in visited.shop.headers if headers.get("content-length", "0") != "0"]
    origins = {(headers["origin"], headers["sec-fetch-site"]) for headers in posts}
    assert origins == {(visited.shop.url, "same-origin")}


async def test_a_shop_that_places_two_orders_of_one_form_is_an_error(shop: FakeStorefront) -> None:
    shop.forgets_keys = True
    finished = await run_load(shop.url, rate=40, duration_seconds=3)
    reasons = {error["reason"] for error in finished.summary["errors"]}
    assert finished.status == 1
    assert reasons == {"a repeat led to another order", "one checkout form led to several orders"}


async def test_a_page_that_fails_is_reported_by_page_and_reason(shop: FakeStorefront) -> None:
    shop.broken = "/checkout"
    finished = await run_load(shop.url, rate=20, duration_seconds=3)
    (error,) = finished.summary["errors"]
    assert (finished.status, error["page"], error["reason"]) == (1, "GET /checkout", "HTTP 503")


async def test_a_shop_that_does_not_listen_is_reported() -> None:
    with reserved(1) as (port,):
        finished = await run_load(f"http://127.0.0.1:{port}", rate=10, duration_seconds=1)
    (error,) = finished.summary["errors"]
    assert (finished.status, error["reason"]) == (1, "no answer: ConnectionRefusedError")


async def test_a_stall_delays_no_arrival_and_shows_in_the_latency_of_all_pages(shop: FakeStorefront) -> None:
    """In a closed loop the customers that wait for their answers would send nothing meanwhile.

    The stall is a third of the run, so the 99th percentile is about its length.
    """
    process = await start_load(shop.url, rate=40, duration_seconds=4)
    await wait_until(lambda: len(shop.arrived) > 100)
    stalled = time.monotonic()
    shop.stalled_until = stalled + 1.5
    summary = (await finish_load(process)).summary
    assert sum(stalled < at < stalled + 1.5 for at in shop.arrived) > 40
    assert summary["p99_ms"] >= 1300
    assert all(page["p99_ms"] > 700 for page in summary["pages"] if page["requests"] > 100)


async def test_a_request_that_waits_for_the_previous_answer_counts_from_when_it_should_have_started(
    shop: FakeStorefront,
) -> None:
    """The answer to the first request takes 2 s; the second should have started long before."""
    shop.stalled_until = math.inf
    process = await start_load(shop.url, rate=20, duration_seconds=3)
    await wait_until(lambda: shop.arrived)
    shop.stalled_until = time.monotonic() + 2
    summary = (await finish_load(process)).summary
    second = next(page for page in summary["pages"] if page["page"] == "GET /categories/{name}")
    assert second["p99_ms"] > 1500


async def test_requests_that_should_have_started_before_the_end_are_sent_after_it(shop: FakeStorefront) -> None:
    """Else a shop that hangs at the end of a run would look better than it is."""
    shop.stalled_until = math.inf
    process = await start_load(shop.url, rate=40, duration_seconds=1, think_seconds=0.1)
    await wait_until(lambda: shop.arrived)
    await asyncio.sleep(1.5)
    assert set(shop.paths) == {"GET /"}
    shop.stalled_until = 0
    summary = (await finish_load(process)).summary
    assert summary["requests"] > 2 * summary["sessions"]


async def test_arrivals_above_the_limit_of_sessions_are_dropped_and_fail_the_run(shop: FakeStorefront) -> None:
    shop.stalled_until = math.inf
    process = await start_load(shop.url, rate=50, max_sessions=20, duration_seconds=2, figures_seconds=0.2)
    await wait_until(lambda: len(shop.arrived) >= 20)
    await asyncio.sleep(1)
    shop.stalled_until = 0
    finished = await finish_load(process)
    assert max(event["in_flight"] for event in finished.events if event["event"] == "figures") == 20
    assert (finished.status, finished.summary["errors"]) == (1, [])
    assert finished.summary["dropped"] > 20


async def test_a_signal_ends_a_run_without_a_duration_and_prints_the_summary(shop: FakeStorefront) -> None:
    process = await start_load(shop.url, rate=20, think_seconds=10)
    await wait_until(lambda: len(shop.arrived) > 5)
    process.terminate()
    finished = await finish_load(process)
    assert (finished.status, finished.summary["requests"] > 5, finished.errors) == (0, True, "")


async def test_a_seed_repeats_the_sessions(shop: FakeStorefront) -> None:
    first = await run_load(shop.url, rate=30, duration_seconds=1, seed="same")
    second = await run_load(shop.url, rate=30, duration_seconds=1, seed="same")
    assert first.summary["sessions"] > 10
    assert first.summary["personas"] == pytest.approx(second.summary["personas"], abs=2)


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
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", script, stdout=asyncio.subprocess.PIPE)
    output, _ = await process.communicate()
    assert output.split() == [b"True", b"True", b"720"]


async def test_an_invalid_setting_ends_the_start_with_its_name() -> None:
    finished = await run_load("shop.example", rate=0)
    assert finished.status == 2
    assert [line.partition(":")[0] for line in finished.errors.splitlines()] == ["STOREFRONT_URL", "RATE"]


async def test_workers_share_the_rate_and_the_master_has_the_figures_of_all(shop: FakeStorefront) -> None:
    with reserved(1) as (port,):
        master = await start_load(shop.url, rate=30, duration_seconds=3, workers=2, master_port=port)
        workers = [await start_load(shop.url, rate=30, master_addr=f"127.0.0.1:{port}") for _ in range(2)]
        finished, *others = [await finish_load(process) for process in (master, *workers)]
    assert [run.status for run in (finished, *others)] == [0, 0, 0]
    assert finished.summary["rate"] == pytest.approx(30, abs=15)
    redirecting = [path for path in shop.paths if path.startswith("POST ") and path != "POST /checkout"]
    followed = sum(shop.paths[path] for path in redirecting)
    assert finished.summary["requests"] == pytest.approx(len(shop.arrived) - followed, abs=20)


async def test_locusts_page_shows_the_figures_and_takes_changes_from_its_own_origin_alone(
    shop: FakeStorefront,
) -> None:
    site, mode = "sec-fetch-site", "sec-fetch-mode"
    with reserved(1) as (port,):
        here, rebound = f"127.0.0.1:{port}", f"rebound.example:{port}"
        process = await start_load(shop.url, rate=5, web_port=port, figures_seconds=0.5)
        await wait_until(lambda: len(shop.arrived) > 20)
        async with httpx2.AsyncClient(base_url=f"http://{here}", trust_env=False) as client:

            async def get(path: str, headers: dict[str, str] | None = None) -> httpx2.Response:
                return await client.get(path, headers=headers)

            async def swarm(**headers: str) -> httpx2.Response:
                fields = {"user_count": "50", "spawn_rate": "50", "host": "http://127.0.0.1:9"}
                return await client.post("/swarm", data=fields, headers=headers)

            page, statistics = (await get("/")).text, (await get("/stats/requests")).json()
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
            linked = await get("/", {site: "same-site", mode: "navigate"})
            own = await swarm(origin=f"http://{here}", **{site: "same-origin"})
        await _rate_above(process, 25)
        process.terminate()
        finished = await finish_load(process)
    assert [response.status_code for response in refused] == [421, 421] + [403] * 6
    assert (linked.text, own.status_code, finished.errors) == (page, 200, "")
    assert finished.summary["errors"] == []  # nobody visited the host that the request named
    names = {(entry["method"], entry["name"]) for entry in statistics["stats"]}
    assert "Locust" in page
    assert {("GET", "/"), ("session", "window shopper")} <= names


async def _rate_above(process: asyncio.subprocess.Process, rate: float) -> None:
    """Wait for a line of figures with a higher rate."""
    assert process.stdout is not None
    async for line in process.stdout:
        if json.loads(line).get("rate", 0) > rate:
            return
