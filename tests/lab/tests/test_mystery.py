"""The order in which a mystery is started, answered and revealed; test_incident_faults.py plays one."""

import time
from pathlib import Path
from typing import cast

import pytest

from chassis.errors import InvalidArgument
from checkout_service.reconciliation.reader import Reader
from shop_cli.control_room.reconciliation import Reconciler
from shop_cli.control_room.room import ControlRoom
from shop_cli.local.processes import Shop
from shop_cli.local.run_file import Run
from shop_cli.local.telemetry_store import TelemetryStore
from shop_cli.local.workspace import discover, find
from shop_lab.incidents import injector
from shop_lab.incidents.catalogue import Fault
from shop_lab.incidents.catalogue import find as find_fault
from shop_lab.incidents.injector import restore
from shop_lab.incidents.local import Local
from shop_lab.incidents.mechanisms import Target
from shop_lab.incidents.mystery import Mystery, OutOfTurn, _begin, suitable
from shop_lab.incidents.state import Record


@pytest.fixture
def mystery(tmp_path: Path) -> Mystery:
    shop = Shop([find(discover(), "ad")], tmp_path, {"ad": 1})
    room = ControlRoom(Run(1, str(tmp_path)), shop, [], TelemetryStore(), Reconciler(cast("Reader", None)))
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


async def test_a_mystery_is_started_answered_and_revealed_in_this_order(mystery: Mystery) -> None:
    for form in ({"step": "answer"}, {"step": "reveal"}, {"step": "other"}, {}):
        with pytest.raises(OutOfTurn):
            await mystery.act(form)
    mystery.fault, mystery.hidden = find_fault("ad-slow"), True
    with pytest.raises(OutOfTurn):
        await mystery.act({"step": "start"})
    with pytest.raises(InvalidArgument, match="answer: must be one of ad"):
        await mystery.act({"step": "answer", "answer": "nobody"})
    await mystery.act({"step": "answer", "answer": " ad "})
    assert [service for _, service in mystery.answers] == ["ad"]
    await mystery.act({"step": "reveal"})
    assert not mystery.hidden


def test_the_time_that_is_left_tells_no_fault_from_another(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    begun: list[float] = []

    def start(fault: Fault, _target: Target, seconds: float) -> Record:
        begun.append(seconds)
        return Record(fault.id)

    monkeypatch.setattr(injector, "start", start)
    for fault in suitable():
        _begin(fault, Local(tmp_path))
        assert {injection.mechanism for injection in fault.injections} == {"failpoint"}  # which restarts nothing
    assert len(begun) > 1
    assert len(set(begun)) == 1
