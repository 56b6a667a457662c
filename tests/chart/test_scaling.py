"""The figures of docs/scaling.md follow from each other, and from the values."""

import math
import re
from pathlib import Path
from typing import Any

import pytest

PAGE = (Path(__file__).resolve().parents[2] / "charts/shop/docs/scaling.md").read_text()
ROWS = re.findall(r"^\| (\w+) \| ([\d.]+) \| ([\d,]+) \| (\d+) \|$", PAGE, re.MULTILINE)
MILLISECONDS = {name.lower(): float(milliseconds) for name, milliseconds, _, _ in ROWS}
ORDERS = 10_000
BUSY = 800
"""Milliseconds a second of a core, of which more would let calls wait."""


def number(pattern: str) -> float:
    """Return the number in the only match of a pattern, in which `#` stands for it and a space for any white space."""
    (found,) = re.findall(pattern.replace(" ", r"\s+").replace("#", r"([\d,.]*\d)"), PAGE)
    return float(found.replace(",", ""))


@pytest.mark.parametrize(("name", "milliseconds", "orders", "replicas"), ROWS)
def test_the_table_follows_from_the_cpu_time_of_an_order(
    name: str, milliseconds: str, orders: str, replicas: str
) -> None:
    assert name.lower() in MILLISECONDS
    assert int(orders.replace(",", "")) == round(BUSY / float(milliseconds), -1)
    assert int(replicas) == math.ceil(ORDERS * float(milliseconds) / BUSY)


def test_the_table_has_what_orders_use(database_services: list[str]) -> None:
    assert MILLISECONDS.keys() == {*database_services, "cart", "postgresql", "valkey"} - {"employee-api"}


def test_an_autoscaler_adds_a_replica_when_the_share_of_the_request_is_used() -> None:
    used = number("with #m and ") * number("and # %") / 100
    assert number("grows at # orders") == round(used / MILLISECONDS["checkout"], -1)


def test_connections_are_those_of_all_replicas(values: dict[str, Any]) -> None:
    replicas = {name: int(count) for name, _, _, count in ROWS}
    pooled = sum(replicas[name] for name in ("checkout", "payment", "shipping", "email"))
    assert number("together # for 10,000") == pooled * number("opens up to #,")
    assert number("PostgreSQL accepts #") == values["postgresql"]["settings"]["max_connections"]


def test_one_postgresql_ends_where_its_cores_do() -> None:
    orders = number("8 cores take # orders")
    assert orders == 8 * round(BUSY / MILLISECONDS["postgresql"], -1)
    assert number("orders, # commits") == round(orders * number("An order makes # commits"), -2)
    assert number("and # MB a second") == round(orders * number("and # kB of write-ahead log") / 1000)
