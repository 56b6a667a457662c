"""The smoke calls of all services of the workspace."""

from collections.abc import Mapping
from importlib import import_module
from typing import cast

import grpc

from chassis.rpc.smoke import SmokeCall
from shop_cli.local.workspace import Program, discover_services


def smoke_call(program: Program, unique: str) -> SmokeCall:
    """Return the smoke call that a service ships; see `chassis.rpc.smoke`."""
    return cast("SmokeCall", import_module(f"{program.module}.smoke").smoke_call(unique))


def smoke_calls(unique: str) -> dict[str, SmokeCall]:
    """Return the smoke call of each service, by the service's name, such as `product-catalog`."""
    return {program.name: smoke_call(program, unique) for program in discover_services()}


def by_full_name(channels: Mapping[str, grpc.aio.Channel]) -> dict[str, grpc.aio.Channel]:
    """Return channels by the services' full names, such as `shop.CartService` as `chassis.rpc.smoke.send` needs."""
    return {call.service: channels[name] for name, call in smoke_calls("").items()}
