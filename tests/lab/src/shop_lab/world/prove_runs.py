"""Runs `shop prove` as a user does."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

_FAULTS = ("kills", "pauses", "stalls", "network", "replaced", "relay", "late", "disks", "operators")
WITHOUT_FAULTS = ("--orders", "120", *(argument for fault in _FAULTS for argument in (f"--{fault}", "0")))


def run_prove(tmp_path: Path, *options: str) -> tuple[int, str, dict[str, Any]]:
    """Return the exit status, the output and the verdict."""
    file = tmp_path / "verdict.json"
    command = [sys.executable, "-m", "shop_cli", "prove", "--json", str(file), *options]
    completed = subprocess.run(command, capture_output=True, text=True, check=False)
    if not file.exists():
        raise RuntimeError(completed.stdout + completed.stderr)
    return completed.returncode, completed.stdout, json.loads(file.read_text())
