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
from shop_lab.incidents.catalogue import find as find_fault
from shop_lab.incidents.local import Local
from shop_lab.incidents.mystery import Mystery, OutOfTurn
from shop_lab.incidents.state import Record


@pytest.fixture
def mystery(tmp_path: Path) -> Mystery:
    """The mystery of a shop that was killed before, with customers who were still there."""
    left = {"mechanism": "load", "token": "left"}
    Local(tmp_path).save(Record(expires=time.time() + 600, inverses=[left]))
    shop = Shop([find(discover(), "ad")], tmp_path, {"ad": 1})
    room = ControlRoom(Run(1, str(tmp_path)), shop, [], TelemetryStore(), Reconciler(cast("Reader", None)))
    return Mystery(room, tmp_path)


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


def test_a_mystery_is_over_once_its_fault_has_ended_or_was_undone(mystery: Mystery) -> None:
    target = Local(mystery.folder)
    assert target.records() == []
    found = []
    for seconds in (600, 0):
        mystery._record = Record(expires=time.time() + seconds)
        target.save(mystery._record)
        found.append(mystery.is_over)
    target.forget(mystery._record)
    assert [*found, mystery.is_over] == [False, True, True]
