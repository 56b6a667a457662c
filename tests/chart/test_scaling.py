"""The figures of docs/scaling.md follow from each other, and from the values."""

import math
import re
from pathlib import Path
from typing import Any

PAGE = (Path(__file__).resolve().parents[2] / "charts/shop/docs/scaling.md").read_text()
ROWS = re.findall(r"^\| (\w+) \| ([\d.]+) \| ([\d,]+) \| (\d+) \|$", PAGE, re.MULTILINE)
ORDERS = 10_000
BUSY = 800
"""Milliseconds a second of a core, of which more would let calls wait."""


def test_the_table_has_what_orders_use_and_follows_from_the_cpu_time_of_an_order(database_services: list[str]) -> None:
    assert {name.lower() for name, *_ in ROWS} == {*database_services, "cart", "postgresql", "valkey"} - {
        "employee-api"
    }
    for _, milliseconds, orders, replicas in ROWS:
        assert int(orders.replace(",", "")) == round(BUSY / float(milliseconds), -1)
        assert int(replicas) == math.ceil(ORDERS * float(milliseconds) / BUSY)


def test_connections_are_those_of_the_values(values: dict[str, Any]) -> None:
    (accepted,) = re.findall(r"PostgreSQL\s+accepts\s+([\d,]*\d)", PAGE)
    assert int(accepted.replace(",", "")) == values["postgresql"]["settings"]["max_connections"]
