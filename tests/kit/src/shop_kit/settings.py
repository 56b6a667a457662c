"""Settings of services under test."""

from collections.abc import Mapping
from typing import Any, TypeVar

from chassis.settings import Settings, load

SettingsT = TypeVar("SettingsT", bound=Settings)

_LOCAL = {"host": "127.0.0.1", "port": 0, "internal_port": 0, "drain_seconds": 0, "grace_seconds": 1}


def load_settings(settings: type[SettingsT], values: Mapping[str, Any]) -> SettingsT:
    """Load settings with these values, by field, as from environment variables; None is an unset one.

    By default a service uses free ports of loopback and stops at once.
    """
    environment = {name.upper(): str(value) for name, value in {**_LOCAL, **values}.items() if value is not None}
    return load(settings, environment)
