"""The smoke calls of all services of the workspace."""

import runpy
from collections.abc import Callable, Mapping
from functools import cache

import grpc

from shop_cli.local.workspace import Program, discover_services, root
from shop_smoke import SmokeCall


def smoke_call(program: Program, unique: str) -> SmokeCall:
    """Return the smoke call of a service; see `shop_smoke`."""
    return _load(program.name)(unique)


@cache
def _load(service: str) -> Callable[[str], SmokeCall]:
    found: Callable[[str], SmokeCall] = runpy.run_path(f"{root()}/services/{service}/tests/smoke.py")["smoke_call"]
    return found


def smoke_calls(unique: str) -> dict[str, SmokeCall]:
    """Return the smoke call of each service, by the service's name, such as `product-catalog`."""
    return {program.name: smoke_call(program, unique) for program in discover_services()}


def by_full_name(channels: Mapping[str, grpc.aio.Channel]) -> dict[str, grpc.aio.Channel]:
    """Return channels by the services' full names, such as `shop.CartService` as `shop_smoke.send` needs."""
    return {call.service: channels[name] for name, call in smoke_calls("").items()}
