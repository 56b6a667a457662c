"""What commands refuse, and what they and a killed shop leave behind: nothing."""

import os
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import typer.testing
from typing_extensions import override

from chassis.errors import InvalidArgument
from shop_cli.local.recording import FOLDER
from shop_cli.local.run_file import DATA, Run, locked, published
from shop_lab.incidents import injector, watcher
from shop_lab.incidents.catalogue import find
from shop_lab.incidents.commands import faults, parse_duration, sending_customers
from shop_lab.incidents.gameday import gameday
from shop_lab.incidents.local import Local
from shop_lab.incidents.record import Load
from shop_lab.incidents.state import Record
from shop_lab.incidents.targets import CannotAct, CannotRestore, NoLaboratory

LOAD = Load(source="command", rate=2, seed=7)


@pytest.mark.parametrize("text", ["0", "2h", "-1", "", "1.5m", "²"])
def test_a_duration_is_a_number_with_a_unit_and_at_most_an_hour(text: str) -> None:
    assert [parse_duration(given) for given in ("90", "90s", "5m", "1h")] == [90, 90, 300, 3600]
    with pytest.raises(InvalidArgument, match="--for"):
        parse_duration(text)


@pytest.mark.parametrize(
    ("app", "arguments", "field"),
    [(gameday, ["--rate", "nan"], "--rate"), (faults, ["start", "quiet"], "FAULT: quiet injects nothing")],
)
def test_what_no_fault_can_be_given_is_refused(app: typer.Typer, arguments: list[str], field: str) -> None:
    with pytest.raises(InvalidArgument, match=field):
        typer.testing.CliRunner().invoke(app, arguments, catch_exceptions=False)


def test_what_cannot_be_undone_is_reported_after_all_else_was(tmp_path: Path) -> None:
    target, end = Local(tmp_path), time.time() + 600
    store = {"mechanism": "store", "store": "postgresql", "database": "payment", "token": "a", "restore": ["SELECT 1"]}
    target.save(Record("a", end, [store]))
    target.save(Record("b", end, [{"mechanism": "load", "token": "b"}]))
    with pytest.raises(CannotRestore, match="this shop has no PostgreSQL"):
        injector.restore(target, everything=True)
    assert [record.token for record in target.records()] == ["a"]


def test_a_shop_that_has_ended_is_cleaned_up_before_the_time_of_its_faults_is_over(tmp_path: Path) -> None:
    target = Local(tmp_path)
    target.replace_modules("ad", {"ad_service.service.py": ""})
    patch = {"mechanism": "patch", "service": "ad", "file": "ad_service.service.py"}
    target.save(Record("a", time.time() + 600, [patch]))
    watcher.main(str(tmp_path))
    assert (target.modules("ad"), target.records()) == ({}, [])


def test_a_recording_ends_when_nothing_is_injected_any_more(tmp_path: Path) -> None:
    (folder := tmp_path / DATA / FOLDER).mkdir(parents=True)
    watcher.main(str(tmp_path))
    assert not folder.exists()


def test_one_incident_or_game_at_a_time(tmp_path: Path) -> None:
    with Local(tmp_path).alone(), pytest.raises(CannotAct, match="another incident or game"), Local(tmp_path).alone():
        pass


def test_a_shop_that_is_no_laboratory_is_refused(tmp_path: Path) -> None:
    target = Local(tmp_path)
    with pytest.raises(CannotAct, match="no shop runs in"):
        injector.start(find("ad-slow"), target, 60)
    refused = pytest.raises(NoLaboratory, match="start it with `shop up --lab`")
    with locked(tmp_path), published(Run(os.getpid(), str(tmp_path))), refused:
        injector.start(find("ad-slow"), target, 60)


@dataclass(frozen=True)
class FakeLocal(Local):
    """A local shop whose customers are `sent` by their seeds."""

    sent: list[str] = field(default_factory=list)

    @override
    def guard(self, record: Record) -> None:
        assert self.records() == [record]

    @override
    def send_customers(self, settings: Mapping[str, str], program: str = "") -> None:
        assert self.records()
        self.sent.append(settings["SEED"])

    @override
    def end_customers(self, seed: str) -> None:
        self.sent[:] = [found for found in self.sent if found != seed]


def test_customers_leave_with_the_command_and_not_before(tmp_path: Path) -> None:
    shop = FakeLocal(tmp_path)
    with sending_customers(shop, LOAD, 8 * 3600):
        assert injector.restore(shop) == []  # another command leaves them alone
        assert shop.sent == ["incident 7"]
        assert shop.records()[0].seconds_left > 7 * 3600
    assert (shop.sent, shop.records()) == ([], [])


def test_customers_of_a_killed_command_leave_with_the_next_one(tmp_path: Path) -> None:
    shop = FakeLocal(tmp_path)
    with sending_customers(shop, LOAD):
        (record,) = shop.records()
        record.owner = f"{record.owner.partition(':')[0]}:999999999"
        shop.save(record)
        assert injector.restore(shop) == [record]
        assert (shop.sent, shop.records()) == ([], [])
