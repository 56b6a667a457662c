"""A logger for modules that CLI commands also import: it imports structlog, which takes 40 ms, only on first use."""

from importlib import import_module
from typing import Any


class _Log:
    def __getattr__(self, name: str) -> Any:
        return getattr(import_module("structlog").get_logger(), name)


log = _Log()
