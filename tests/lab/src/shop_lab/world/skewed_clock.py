"""Runs the module of a service, as `python -m`, with another clock of its SQLite database."""

import os
import runpy
import time
from types import SimpleNamespace

from chassis.sql import sqlite

AHEAD_SECONDS, MODULE = "AHEAD_SECONDS", "MODULE"

if __name__ == "__main__":
    ahead_seconds = float(os.environ[AHEAD_SECONDS])
    skewed = {**vars(time), "time": lambda: time.time() + ahead_seconds}
    sqlite.time = SimpleNamespace(**skewed)  # type: ignore[assignment,attr-defined]
    runpy.run_module(os.environ[MODULE], run_name="__main__", alter_sys=True)
