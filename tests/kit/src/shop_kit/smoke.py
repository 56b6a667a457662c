"""The smoke calls of all services of the workspace."""

import runpy
from collections.abc import Callable, Mapping
from functools import cache

import grpc

from shop_cli.local.workspace import discover_services, root
from shop_smoke import SmokeCall


@cache
def _makers() -> dict[str, Callable[[str], SmokeCall]]:
    files = {program.name: f"{root()}/services/{program.name}/tests/smoke.py" for program in discover_services()}
    return {name: runpy.run_path(file)["smoke_call"] for name, file in files.items()}


def smoke_calls(unique: str) -> dict[str, SmokeCall]:
    """Return the smoke call of each service, by the service's name, such as `product-catalog`; see `shop_smoke`."""
    return {name: make(unique) for name, make in _makers().items()}


def by_full_name(channels: Mapping[str, grpc.aio.Channel]) -> dict[str, grpc.aio.Channel]:
    """Return channels by the services' full names, such as `shop.CartService` as `shop_smoke.send` needs."""
    return {call.service: channels[name] for name, call in smoke_calls("").items()}
