"""A mystery in the control room, and the order in which it is started, answered and revealed."""

import time
from pathlib import Path
from typing import cast

import pytest
from playwright.async_api import expect

from chassis.errors import InvalidArgument
from checkout_service.reconciliation.reader import Reader
from shop_cli.control_room.customers import Customers
from shop_cli.control_room.reconciliation import Reconciler
from shop_cli.control_room.room import ControlRoom
from shop_cli.local.processes import Shop
from shop_cli.local.supervision import Monitor
from shop_cli.local.telemetry_store import TelemetryStore
from shop_cli.local.workspace import discover, find
from shop_kit.browser import SCREENSHOTS, accessibility_violations, open_tab, running_browser
from shop_kit.running_shop import shop_up
from shop_lab.incidents import injector
from shop_lab.incidents.catalogue import Fault
from shop_lab.incidents.catalogue import find as find_fault
from shop_lab.incidents.injector import restore
from shop_lab.incidents.local import Local
from shop_lab.incidents.mystery import Mystery, OutOfTurn, _begin, suitable
from shop_lab.incidents.state import Record
from shop_lab.incidents.targets import Target

SOON = 300_000


@pytest.fixture
def mystery(tmp_path: Path) -> Mystery:
    shop = Shop([find(discover(), "ad")], tmp_path, {"ad": 1})
    room = ControlRoom(
        shop, Monitor(shop), TelemetryStore(), Reconciler(cast("Reader", None)), Customers(None, tmp_path / "log")
    )
    return Mystery(room, tmp_path)


def test_what_a_killed_shop_left_behind_is_undone(mystery: Mystery, tmp_path: Path) -> None:
    left = {"mechanism": "load", "token": "left"}
    Local(tmp_path).save(Record(expires=time.time() + 600, inverses=[left]))
    Mystery(mystery.room, tmp_path)
    assert Local(tmp_path).records() == []


def test_a_mystery_is_over_once_its_fault_was_undone(mystery: Mystery, tmp_path: Path) -> None:
    mystery._record = Record(expires=time.time() + 600)
    Local(tmp_path).save(mystery._record)
    assert not mystery.is_over
    restore(Local(tmp_path), everything=True)
    assert mystery.is_over


@pytest.mark.parametrize("step", ["answer", "reveal", "other", None])
async def test_before_a_fault_nothing_is_answered_or_revealed(mystery: Mystery, step: str) -> None:
    with pytest.raises(OutOfTurn):
        await mystery.act({"step": step} if step else {})


async def test_a_second_fault_needs_that_the_first_one_is_revealed(mystery: Mystery) -> None:
    mystery.fault, mystery.hidden = find_fault("ad-slow"), True
    with pytest.raises(OutOfTurn):
        await mystery.act({"step": "start"})
    await mystery.act({"step": "reveal"})
    assert not mystery.hidden


async def test_an_answer_names_a_service(mystery: Mystery) -> None:
    mystery.fault, mystery.hidden = find_fault("ad-slow"), True
    with pytest.raises(InvalidArgument, match="answer: must be one of ad"):
        await mystery.act({"step": "answer", "answer": "nobody"})
    await mystery.act({"step": "answer", "answer": " ad "})
    assert [service for _, service in mystery.answers] == ["ad"]


def test_the_time_that_is_left_tells_no_fault_from_another(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    begun: list[float] = []

    def start(fault: Fault, _target: Target, seconds: float) -> Record:
        begun.append(seconds)
        return Record(fault.id)

    monkeypatch.setattr(injector, "start", start)
    for fault in suitable():
        _begin(fault, Local(tmp_path))
    assert len(begun) > 1
    assert len(set(begun)) == 1


async def test_a_mystery_breaks_a_service_and_names_it_when_it_is_revealed(tmp_path: Path) -> None:
    async with (
        running_browser() as browser,
        shop_up(tmp_path, "--lab") as run,
        open_tab(browser, run.control_room) as tab,
    ):
        await tab.page.goto(f"/?token={run.token}")
        section, laboratory = tab.page.get_by_label("Laboratory"), Local(tmp_path)
        await tab.page.get_by_role("button", name="Break something").click()
        await expect(section).to_contain_text("Which one?", timeout=SOON)
        assert len(laboratory.records()) == 1
        shown = await tab.page.content()
        assert [word for fault in suitable() for word in fault.words if word in shown] == []
        await tab.page.get_by_label("Service at fault").fill("storefront")
        await tab.page.get_by_role("button", name="Answer").click()
        await expect(section).to_contain_text("storefront, after", timeout=SOON)
        await tab.page.get_by_role("button", name="Reveal").click()
        await expect(section.get_by_text("wrong")).to_be_visible(timeout=SOON)
        assert await section.get_by_role("heading", level=3).inner_text() in {fault.title for fault in suitable()}
        assert laboratory.records() == []
        await tab.page.screenshot(path=SCREENSHOTS / "light" / "mystery.png", full_page=True)
        assert await accessibility_violations(tab.page) == []
        assert tab.problems == []
