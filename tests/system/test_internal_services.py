"""Internal services are on ports of their own: the public ports neither serve nor describe them."""

import asyncio
from importlib import import_module
from pathlib import Path

import grpc
import pytest
from google.protobuf.descriptor import FileDescriptor, MethodDescriptor

from shop_cli.local.workspace import discover_services
from shop_kit.reflection import methods_at
from shop_lab.world.running_shop import RunningShop
from shop_lab.world.smoke import smoke_calls

PROTOS = Path(__file__).parents[2] / "protos" / "shop_internal"
SERVICES = discover_services()

each_service = pytest.mark.parametrize("name", [program.name for program in SERVICES])


def internal_methods() -> list[MethodDescriptor]:
    files: list[FileDescriptor] = [
        import_module(f"shop_internal.{proto.stem}_pb2").DESCRIPTOR for proto in PROTOS.glob("*.proto")
    ]
    services = [service for file in files for service in file.services_by_name.values()]
    return [method for service in services for method in service.methods]


async def reflected(address: str) -> set[str]:
    methods = await asyncio.to_thread(methods_at, address)
    return {method.containing_service.full_name for method in methods}


@each_service
async def test_no_internal_method_can_be_called_on_a_public_port(shop: RunningShop, name: str) -> None:
    codes = set()
    for method in internal_methods():
        path = f"/{method.containing_service.full_name}/{method.name}"
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await shop.channels[name].unary_unary(path, bytes, bytes)(b"")
        codes.add(refused.value.code())
    assert codes == {grpc.StatusCode.UNIMPLEMENTED}


@each_service
async def test_a_public_port_describes_its_public_service_only(shop: RunningShop, name: str) -> None:
    assert await reflected(shop.processes[name].address) == {smoke_calls("")[name].service}


async def test_an_internal_service_is_described_by_one_internal_port(shop: RunningShop) -> None:
    described = [
        service
        for program in SERVICES
        if program.internal_port
        for service in await reflected(shop.processes[program.name].internal_address)
    ]
    expected = {method.containing_service.full_name for method in internal_methods()}
    assert sorted(described) == sorted(expected)
