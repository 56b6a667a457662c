"""Customers of an incident leave with its command, even if that is killed."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from typing_extensions import override

from shop_lab.incidents import injector
from shop_lab.incidents.commands import sending_customers
from shop_lab.incidents.local import Local
from shop_lab.incidents.record import Load
from shop_lab.incidents.state import Record

LOAD = Load(source="command", rate=2, seed=7)


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


def test_customers_leave_with_the_command(tmp_path: Path) -> None:
    shop = FakeLocal(tmp_path)
    with sending_customers(shop, LOAD):
        assert injector.restore(shop) == []  # another command leaves them alone
        assert shop.sent == ["incident 7"]
    assert (shop.sent, shop.records()) == ([], [])


def test_customers_of_a_killed_command_leave_with_the_next_one(tmp_path: Path) -> None:
    shop = FakeLocal(tmp_path)
    with sending_customers(shop, LOAD):
        (record,) = shop.records()
        record.owner = f"{record.owner.partition(':')[0]}:999999999"
        shop.save(record)
        assert injector.restore(shop) == [record]
        assert (shop.sent, shop.records()) == ([], [])


def test_customers_of_a_long_game_stay_until_its_end(tmp_path: Path) -> None:
    shop = FakeLocal(tmp_path)
    with sending_customers(shop, LOAD, 8 * 3600):
        (record,) = shop.records()
        assert record.seconds_left > 7 * 3600
