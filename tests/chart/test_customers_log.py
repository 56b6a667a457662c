"""tests/e2e/customers.py, which judges the log of a load generator after a rolling restart."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

SCRIPT = Path(__file__).parents[1] / "e2e/customers.py"
PAGE = {"page": "GET /", "requests": 9, "failures": 0, "p50_ms": 5, "p99_ms": 9}
SERVED = {"event": "summary", "sessions": 3, "orders": 2, "errors": [], "dropped": 0, "pages": [PAGE]}
ERROR = {"page": "GET /", "reason": "HTTP 503", "count": 1}


def status(folder: Path, *events: dict[str, Any]) -> int:
    log = folder / "log"
    log.write_text("a line of another program\n" + "".join(f"{json.dumps(event)}\n" for event in events))
    return subprocess.run([sys.executable, SCRIPT, log], capture_output=True, check=False).returncode


def test_customers_who_ordered_without_an_error_were_served(tmp_path: Path) -> None:
    assert status(tmp_path, {"event": "started"}, SERVED) == 0


@pytest.mark.parametrize(
    "events",
    [[], [{**SERVED, "orders": 0}], [{**SERVED, "errors": [ERROR]}], [{**SERVED, "dropped": 1}]],
    ids=["no summary", "no order", "an error", "a dropped session"],
)
def test_other_customers_were_not(tmp_path: Path, events: list[dict[str, Any]]) -> None:
    assert status(tmp_path, {"event": "started"}, *events) == 1
