"""The pages of a control room whose services do not run, with what is stored about them."""

import json
import re
import time
from collections.abc import AsyncIterator, Mapping
from pathlib import Path

import httpx2
import pytest
from typing_extensions import override

from chassis.telemetry import semconv
from shop_cli.control_room.app import create_app
from shop_cli.control_room.customers import Customers
from shop_cli.control_room.reconciliation import Reconciler, Reconciliation
from shop_cli.control_room.room import ControlRoom, Panel
from shop_cli.local.processes import Shop
from shop_cli.local.spans import Span
from shop_cli.local.supervision import Monitor
from shop_cli.local.telemetry_store import TelemetryStore
from shop_cli.local.workspace import Program

TOKEN = "the-token"


class Reconciled(Reconciler):
    """Always returns the same comparison."""

    def __init__(self) -> None:
        pass

    @override
    async def read(self) -> Reconciliation:
        return Reconciliation(orders=5, declined=2, charges=3, shipments=3, confirmations=3)


@pytest.fixture
def room(ad: Program, port: int, tmp_path: Path) -> ControlRoom:
    shop = Shop([ad], tmp_path, {"ad": port})
    return ControlRoom(shop, Monitor(shop), TelemetryStore(), Reconciled(), Customers(None, tmp_path / "log"))


@pytest.fixture
async def client(room: ControlRoom, port: int) -> AsyncIterator[httpx2.AsyncClient]:
    headers = {"Authorization": f"Bearer {TOKEN}", "Accept": "text/html"}
    transport = httpx2.ASGITransport(create_app(room, port, TOKEN))
    async with httpx2.AsyncClient(transport=transport, base_url=f"http://localhost:{port}", headers=headers) as opened:
        yield opened


def store(room: ControlRoom, name: str, trace_id: str, milliseconds: int, kind: str = "SERVER") -> None:
    """Store a trace of one span of the ad service that has just ended."""
    end = time.time_ns() - 3 * 10**9
    started = end - milliseconds * 10**6
    room.telemetry.store(Span("ad", "", trace_id, "1", "", name, kind, started, end, {semconv.ORDER_ID: "o"}, False))


async def test_the_map_and_the_table_show_who_calls_whom(room: ControlRoom, client: httpx2.AsyncClient) -> None:
    for kind in ("SERVER", "CLIENT"):
        store(room, "shop.AdService/GetAds", "a" * 32, 5, kind)
    page = (await client.get("/")).text
    assert "<line" in page
    assert "ad → ad" in page


async def test_the_proof_counts_declined_orders(client: httpx2.AsyncClient) -> None:
    assert "<dt>declined</dt><dd>2</dd>" in (await client.get("/")).text


async def test_the_demonstration_is_explained_before_it_is_started(client: httpx2.AsyncClient) -> None:
    page = (await client.get("/")).text
    assert page.index("the card is charged once") < page.index("Freeze payment and kill checkout")


async def test_traces_are_sorted_as_the_address_says(room: ControlRoom, client: httpx2.AsyncClient) -> None:
    for trace_id, milliseconds in (("1", 10), ("2", 30), ("3", 20)):
        store(room, "shop.AdService/GetAds", trace_id, milliseconds)
    page = (await client.get("/", params={"sort": "duration", "service": "ad"})).text
    assert re.findall(r'href="/traces/(\d)"', page) == ["2", "3", "1"]
    assert 'href="/?sort=spans&amp;service=ad#traces"' in page
    assert 'aria-sort="descending"' in page


async def test_what_is_searched_for_is_shown_as_text(client: httpx2.AsyncClient) -> None:
    assert "<script>alert" not in (await client.get("/", params={"order": "<script>alert(1)</script>"})).text


async def test_a_path_with_a_trailing_slash_is_unknown(client: httpx2.AsyncClient) -> None:
    assert (await client.get("/api/status/")).status_code == 404


async def test_an_unknown_order_of_traces_is_refused(client: httpx2.AsyncClient) -> None:
    response = await client.get("/", params={"sort": "colour"})
    assert response.status_code == 400
    assert "sort: must be one of started, duration, spans" in response.text


async def test_a_minimum_that_is_no_number_is_refused(client: httpx2.AsyncClient) -> None:
    response = await client.get("/", params={"min_ms": "many"})
    assert response.status_code == 400
    assert "min_ms: must be a number" in response.text


@pytest.mark.parametrize("limit", ["9" * 400, "1.5"])
async def test_any_number_of_traces_may_be_asked_for(client: httpx2.AsyncClient, limit: str) -> None:
    assert (await client.get("/api/traces", params={"limit": limit})).status_code == 200


@pytest.mark.parametrize("rate", ["many", "-1", "1001", "inf", ""])
async def test_an_impossible_rate_of_customers_is_refused(client: httpx2.AsyncClient, rate: str) -> None:
    response = await client.post("/customers", content=f"rate={rate}")
    assert response.status_code == 400
    assert "rate: must be a number" in response.text


async def test_a_shop_without_a_storefront_has_no_customers(client: httpx2.AsyncClient) -> None:
    assert "this shop has no storefront" in (await client.post("/customers", content="rate=1")).text


async def test_a_trace_is_a_waterfall(client: httpx2.AsyncClient, room: ControlRoom) -> None:
    store(room, "shop.AdService/GetAds", "a" * 32, 5)
    page = (await client.get(f"/traces/{'a' * 32}")).text
    assert "AdService/GetAds" in page
    assert "<rect" in page


async def test_a_trace_whose_spans_were_dropped_is_its_log_lines(client: httpx2.AsyncClient, room: ControlRoom) -> None:
    log = room.shop["ad"].log_path
    log.parent.mkdir(parents=True)
    log.write_text(json.dumps({"event": "ads chosen", "trace_id": "a" * 32}))
    page = (await client.get(f"/traces/{'a' * 32}")).text
    assert "no longer stored" in page
    assert "ads chosen" in page


async def test_an_unknown_trace_may_be_no_longer_stored(client: httpx2.AsyncClient) -> None:
    response = await client.get(f"/traces/{'b' * 32}")
    assert response.status_code == 404
    assert "no longer stored" in response.text


class OnePanel:
    """Shows what its form sent last."""

    template = "<p>sent: {{ panel.sent }}</p>"
    sent = ""

    async def act(self, form: Mapping[str, str]) -> None:
        self.sent = form["text"]


@pytest.fixture
def panel(room: ControlRoom) -> Panel:
    room.panel = OnePanel()
    return room.panel


@pytest.mark.usefixtures("panel")
async def test_a_panel_acts_on_its_form_and_shows_no_markup_of_it(client: httpx2.AsyncClient) -> None:
    assert (await client.post("/panel", content="text=%3Cb%3E")).status_code == 303
    assert "<p>sent: &lt;b&gt;</p>" in (await client.get("/")).text


async def test_a_shop_that_is_no_laboratory_has_no_panel(client: httpx2.AsyncClient) -> None:
    assert (await client.post("/panel")).status_code == 404
    assert "Laboratory" not in (await client.get("/")).text
