"""A logger for modules that commands import, too: structlog takes them 40 ms, and they log nothing."""

from importlib import import_module
from typing import Any


class _Log:
    def __getattr__(self, name: str) -> Any:
        return getattr(import_module("structlog").get_logger(), name)


log = _Log()
