"""The control room's pages, without running services but with stored traces and logs."""

import asyncio
import json
import re
import time
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import cast

import httpx2
import pytest
from typing_extensions import override

from chassis.telemetry import semconv
from checkout_service.reconciliation.reader import Comparison, Reader
from shop_cli.control_room.app import create_app
from shop_cli.control_room.customers import Customers
from shop_cli.control_room.reconciliation import Reconciler
from shop_cli.control_room.room import ControlRoom
from shop_cli.local.processes import Shop
from shop_cli.local.run_file import Run
from shop_cli.local.telemetry_store import TelemetryStore
from shop_cli.local.workspace import Program
from shop_internal.orders_pb2 import OpenMismatch
from shop_kit.spans import span

TRACE = "a" * 32


class Records:
    """Records whose comparison always has the same result."""

    def __init__(self, found: Comparison) -> None:
        self._found = found

    async def compare(self, _since: float, _due_before: float) -> Comparison:
        return self._found


def reconciler(found: Comparison) -> Reconciler:
    return Reconciler(cast("Reader", Records(found)))


@pytest.fixture
def room(ad: Program, port: int, tmp_path: Path) -> ControlRoom:
    run = Run(1, str(tmp_path), control_room=f"http://localhost:{port}", token="the-token")
    return ControlRoom(run, Shop([ad], tmp_path, {"ad": port}), [], TelemetryStore(), reconciler(Comparison()))


@pytest.fixture
async def client(room: ControlRoom) -> AsyncIterator[httpx2.AsyncClient]:
    headers = {"Authorization": f"Bearer {room.run.token}", "Accept": "text/html"}
    transport = httpx2.ASGITransport(create_app(room))
    async with httpx2.AsyncClient(transport=transport, base_url=room.run.control_room, headers=headers) as opened:
        yield opened


def store(room: ControlRoom, trace_id: str, milliseconds: int = 5, kind: str = "SERVER") -> None:
    """Store a trace with a single span, from the ad service, that ended three seconds ago."""
    ended, order = time.time() - 3, {semconv.ORDER_ID: "o"}
    name = "shop.AdService/GetAds"
    room.telemetry.store(
        span("ad", name, kind, trace_id=trace_id, milliseconds=milliseconds, ended=ended, attributes=order)
    )


async def test_the_page_shows_who_calls_whom_declined_orders_and_explains_the_demonstration_before_it_is_started(
    room: ControlRoom, client: httpx2.AsyncClient
) -> None:
    for kind in ("SERVER", "CLIENT"):
        store(room, TRACE, kind=kind)
    page = (await client.get("/", params={"order": "<script>alert(1)</script>"})).text
    parts = ("<line", "ad → ad", "no orders to compare")
    assert [part for part in parts if part not in page] == []
    agreed = [OpenMismatch(order_id="o-1")]
    room.reconciler = reconciler(Comparison(orders=5, complete=3, declined=2, agreed=agreed))
    assert (await client.get("/api/status")).json()["reconciliation"]["verdict"] == "holds"
    reconciled = (await client.get("/")).text
    assert ("<dt>declined</dt><dd>2</dd>" in reconciled, "every order agrees" in reconciled) == (True, True)
    assert page.index("the card is charged once") < page.index("Freeze payment and kill checkout")
    assert "<script>alert" not in page


async def test_traces_are_sorted_as_the_address_says(room: ControlRoom, client: httpx2.AsyncClient) -> None:
    for trace_id, milliseconds in (("1", 10), ("2", 30), ("3", 20)):
        store(room, trace_id, milliseconds)
    page = (await client.get("/", params={"sort": "duration", "service": "ad"})).text
    assert re.findall(r'href="/traces/(\d)"', page) == ["2", "3", "1"]
    assert 'href="/?sort=spans&amp;service=ad#traces"' in page
    assert 'aria-sort="descending"' in page


@pytest.mark.parametrize(
    ("path", "status", "text"),
    [
        ("/?sort=colour", 400, "sort: must be one of started, duration, spans"),
        ("/?min_ms=many", 400, "min_ms: must be a number"),
        (f"/api/traces?limit={'9' * 400}", 200, "[]"),
        ("/api/traces?limit=1.5", 200, "[]"),
        (f"/traces/{TRACE}", 404, "no longer stored"),
        ("/nothing", 404, "there is no page nothing"),
        ("/api/status/", 404, "Not Found"),  # a redirect would trust the Host header
    ],
)
async def test_what_is_searched_for_is_checked_and_may_be_unknown(
    client: httpx2.AsyncClient, path: str, status: int, text: str
) -> None:
    response = await client.get(path)
    assert (response.status_code, text in response.text) == (status, True)


@pytest.mark.parametrize(
    ("rate", "refusal"),
    [*((rate, "rate: must be a number") for rate in ("many", "-1", "1001", "inf", "")), ("1", "has no storefront")],
)
async def test_an_impossible_rate_of_customers_and_any_without_a_storefront_is_refused(
    client: httpx2.AsyncClient, rate: str, refusal: str
) -> None:
    response = await client.post("/customers", content=f"rate={rate}")
    assert (response.status_code, refusal in response.text) == (409 if rate == "1" else 400, True)


async def test_two_changes_of_the_rate_at_once_start_one_process_after_the_other(tmp_path: Path) -> None:
    steps = []

    class Recorded(Customers):
        @override
        async def start(self) -> None:
            await asyncio.sleep(0)
            steps.append("start")

        @override
        async def stop(self) -> int:
            steps.append("stop")
            return 0

    customers = Recorded("http://shop", tmp_path / "log")
    await asyncio.gather(customers.set_rate(1), customers.set_rate(2))
    assert steps == ["stop", "start"] * 2


async def test_a_trace_is_a_waterfall_and_one_whose_spans_were_dropped_its_log_lines(
    client: httpx2.AsyncClient, room: ControlRoom
) -> None:
    store(room, TRACE)
    page = (await client.get(f"/traces/{TRACE}")).text
    assert ("AdService/GetAds" in page, "<rect" in page) == (True, True)
    log = room.shop["ad"].log_path
    log.parent.mkdir(parents=True)
    log.write_text(json.dumps({"event": "ads chosen", "trace_id": "b" * 32}))
    page = (await client.get(f"/traces/{'b' * 32}")).text
    assert ("no longer stored" in page, "ads chosen" in page) == (True, True)


class OneSection:
    """Shows the last text that its form sent."""

    page = "/"
    template = "<p>sent: {{ panel.sent }}</p>"
    sent = ""

    async def act(self, form: Mapping[str, str]) -> None:
        self.sent = form["text"]


@pytest.fixture
def section(room: ControlRoom) -> None:
    room.sections["panel"] = OneSection()


@pytest.mark.usefixtures("section")
async def test_a_plugin_s_section_acts_on_its_form_and_shows_no_markup_of_it(client: httpx2.AsyncClient) -> None:
    assert (await client.post("/panel", content="text=%3Cb%3E")).status_code == 303
    for page in ("/", "/panel"):
        assert "<p>sent: &lt;b&gt;</p>" in (await client.get(page)).text
