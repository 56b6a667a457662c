"""A bound on the cost of an order that a busy machine cannot blur: the number of Python functions that it calls."""

import json
import sys
from collections import Counter
from pathlib import Path
from subprocess import check_output

import pytest

RECORD = Path(__file__).with_name("order_calls.json")
"""The calls of a sampled and an unsampled order: in total, and by function that is called more than four times."""


@pytest.mark.parametrize(("kind", "ratio"), [("sampled", "1"), ("unsampled", "0")])
def test_an_order_calls_no_more_functions_than_recorded(kind: str, ratio: str, tmp_path: Path) -> None:
    calls = Counter(json.loads(check_output([sys.executable, "-m", "shop_kit.order_calls", str(tmp_path), ratio])))
    recorded = json.loads(RECORD.read_text())
    often = {name: count for name, count in sorted(calls.items()) if count > 4}
    (tmp_path / RECORD.name).write_text(json.dumps({**recorded, kind: {"total": calls.total(), **often}}, indent=0))
    grown = (calls - Counter(recorded[kind])).most_common(10)
    assert calls.total() <= recorded[kind]["total"] * 1.03, f"grown: {grown}; the new record is in {tmp_path}"
