"""Faults of a local shop: they act, compose and end."""

import asyncio
import re
import sys
import time
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from playwright.async_api import expect

from chassis.errors import Unavailable
from chassis.rpc import client
from chassis.tls.certificates import Certificates
from shop.ad_pb2 import AdRequest
from shop.ad_pb2_grpc import AdServiceStub
from shop_cli.local.run_file import DATA, Run
from shop_kit.browser import accessibility_violations, faults_of_appearance, open_tab, running_browser, save_picture
from shop_kit.running_shop import shop_up
from shop_kit.waiting import wait_until
from shop_lab.incidents import injector
from shop_lab.incidents.catalogue import Fault, find
from shop_lab.incidents.commands import list_faults, stop_faults
from shop_lab.incidents.local import Local
from shop_lab.incidents.mystery import suitable
from shop_lab.incidents.state import Record
from shop_lab.incidents.targets import CannotAct

pytestmark = pytest.mark.asyncio(loop_scope="module")

ADS = "shop.AdService/GetAds"
MINUTES = 300_000
VISITS = re.compile("/products/|BRAND_NOT_ACCEPTED")


class LabShop:
    """A shop with a laboratory, as faults and customers see it."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self.target = Local(Path(run.folder))

    async def ads(self) -> list[str]:
        """Return the texts of the ads."""
        certificates = Certificates.load(self.run.tls_folder)
        channel = client.channel(self.run.addresses["ad"], "", timeout_seconds=60, certificates=certificates)
        try:
            return [ad.text for ad in (await AdServiceStub(channel).GetAds(AdRequest())).ads]
        finally:
            await channel.close()

    async def start(self, seconds: float, *injections: dict[str, Any]) -> Record:
        return await asyncio.to_thread(injector.start, fault(*injections), self.target, seconds)

    async def undo(self, record: Record) -> None:
        await asyncio.to_thread(injector.undo, record, self.target)

    def injected(self) -> list[str]:
        return [record.token for record in self.target.records()]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shop(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[LabShop]:
    folder = tmp_path_factory.mktemp("shop")
    # What a shop that was killed has left behind, with customers who were still there.
    Local(folder).save(Record(expires=time.time() + 600, inverses=[{"mechanism": "load", "token": "left"}]))
    async with shop_up(folder, "--lab", "--tls") as run:
        assert Local(folder).records() == []
        yield LabShop(run)


def fault(*injections: dict[str, Any]) -> Fault:
    changes = {"id": "x", "service": "ad", "local": True, "injections": injections}
    return Fault.model_validate({**find("ad-slow").model_dump(), **changes})


def failing(action: str = "error:UNAVAILABLE", method: str = ADS, **more: Any) -> dict[str, Any]:
    return {"mechanism": "failpoint", "service": "ad", "specification": f"{method}={action}", **more}


async def test_two_faults_act_at_once_and_end_one_after_the_other(shop: LabShop) -> None:
    first, second = await shop.start(600, failing("error:NOT_FOUND%1")), await shop.start(600, failing())
    with pytest.raises(Unavailable):
        await shop.ads()
    await shop.undo(second)
    assert await shop.ads()
    assert shop.injected() == [first.token]
    await shop.undo(first)
    assert shop.injected() == []


@pytest.mark.parametrize(
    ("injection", "message"),
    [
        (failing(method="shop.AdService/Nothing"), "^ad refuses .*: failpoint.specification: this process has no such"),
        (failing(pods=1), "^ad runs in 1 processes, which are too few"),
        (failing(service="storefront"), "^storefront has no failpoints"),
        (failing(after=600), "^x takes 600 s to unfold, longer than its 600 s$"),
    ],
)
async def test_what_cannot_act_is_one_line_and_nothing_is_injected(
    shop: LabShop, injection: dict[str, Any], message: str
) -> None:
    with pytest.raises(CannotAct, match=message) as refused:
        await shop.start(600, failing("error:NOT_FOUND"), injection)
    assert "\n" not in str(refused.value)
    assert shop.injected() == []
    assert await shop.ads()


def customers(*seeds: str) -> list[str]:
    """Return those of the seeds whose customers visit a shop."""
    found: set[bytes] = set()
    for path in Path("/proc").glob("[0-9]*/environ"):
        with suppress(OSError):  # of another user, or of a process that has ended
            found.update(path.read_bytes().split(b"\0"))
    return [seed for seed in seeds if f"SEED={seed}".encode() in found]


async def test_further_customers_come_and_are_sent_home(shop: LabShop) -> None:
    load = {"mechanism": "load", "rate": 5}
    seeds = [(await shop.start(600, {**load, **more})).token for more in ({}, {"persona": "card_tester"})]
    log = Path(shop.run.folder) / DATA / "log" / "storefront.log"
    await wait_until(lambda: {"/products/", "BRAND_NOT_ACCEPTED"} <= set(re.findall(VISITS, log.read_text())))
    assert customers(*seeds) == seeds
    await asyncio.to_thread(injector.restore, shop.target, everything=True)
    await wait_until(lambda: not customers(*seeds))


async def test_a_fault_lasts_when_its_command_has_ended_until_another_one_stops_it(
    shop: LabShop, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(shop.run.folder)
    program = (sys.executable, "-m", "shop_cli", "faults", "start", "ad-slow", "--for", "1h")
    process = await asyncio.create_subprocess_exec(*program, stdout=PIPE)
    output, _ = await process.communicate()
    token = output.decode().split()[0]
    await asyncio.to_thread(list_faults)
    assert shop.injected() == [token]
    await asyncio.to_thread(stop_faults, token)
    assert shop.injected() == []
    shown = capsys.readouterr().out
    assert shown.endswith(f"undone: {token}\n")
    assert shown.count(token) == 2


async def test_a_mystery_breaks_a_service_and_names_it_when_it_is_revealed(shop: LabShop) -> None:
    async with running_browser() as browser, open_tab(browser, shop.run.control_room) as tab:

        async def status_of(**form: str) -> int:
            bearer = {"Authorization": f"Bearer {shop.run.token}"}
            return (await tab.page.request.post("/mystery", form={**form}, headers=bearer)).status

        await tab.page.goto(f"/?token={shop.run.token}")
        section = tab.page.get_by_label("mystery")
        assert [await status_of(step=step) for step in ("answer", "reveal", "other", "")] == [409] * 4
        await tab.page.get_by_role("button", name="Break something").click()
        await expect(section).to_contain_text("Which one?", timeout=MINUTES)
        assert [await status_of(step="start"), await status_of(step="answer", answer="nobody")] == [409, 400]
        (record,) = shop.target.records()
        assert 800 < record.seconds_left <= 900  # whichever it is: `shop faults list` tells none from another
        shown = await tab.page.content()
        assert [word for fault in suitable() for word in fault.words if word in shown] == []
        await tab.page.get_by_label("Service at fault").fill("storefront")
        await tab.page.get_by_role("button", name="Answer").click()
        await expect(section).to_contain_text("storefront, after", timeout=MINUTES)
        await shop.undo(record)
        await expect(section).to_contain_text("It has ended by itself", timeout=MINUTES)
        await tab.page.get_by_role("button", name="Reveal").click()
        await expect(section.get_by_text("wrong")).to_be_visible(timeout=MINUTES)
        assert await section.get_by_role("heading", level=3).inner_text() in {fault.title for fault in suitable()}
        assert shop.injected() == []
        await save_picture(tab.page, "light", "mystery")
        assert await accessibility_violations(tab.page) == []
        assert tab.problems == []


async def test_a_fault_is_started_and_stopped_on_the_page_of_the_catalogue(shop: LabShop) -> None:
    async with running_browser() as browser, open_tab(browser, shop.run.control_room) as tab:
        await tab.page.goto(f"/faults?token={shop.run.token}")
        await tab.page.locator("#ad-slow summary").first.click()
        await tab.page.get_by_role("button", name="Start ad-slow").click()
        stop = tab.page.get_by_role("button", name=f"Stop {find('ad-slow').title}")
        await expect(stop).to_be_visible(timeout=MINUTES)
        assert len(shop.injected()) == 1
        assert await tab.page.get_by_role("link", name="Storefront").count() == 1
        await expect(tab.page.get_by_text("ad, which calls nothing")).to_be_visible()  # the details stay open
        assert await faults_of_appearance(tab.page, "faults") == []
        await stop.click()
        await expect(stop).not_to_be_attached(timeout=MINUTES)
        assert (shop.injected(), tab.problems) == ([], [])
