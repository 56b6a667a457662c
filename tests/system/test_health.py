"""Every service provides health checks, reflection and structured logs."""

import asyncio
import json

import grpc
import pytest
from grpc_health.v1.health_pb2 import HealthCheckRequest, HealthCheckResponse

from shop_cli.local.workspace import discover_services
from shop_kit.reflection import methods_at
from shop_lab.world.running_shop import RunningShop
from shop_lab.world.smoke import smoke_calls

each_service = pytest.mark.parametrize("name", [program.name for program in discover_services()])


def full_name(name: str) -> str:
    return smoke_calls("")[name].service


async def health_of(channel: grpc.aio.Channel, service: str) -> str:
    check = channel.unary_unary(
        "/grpc.health.v1.Health/Check", HealthCheckRequest.SerializeToString, HealthCheckResponse.FromString
    )
    answer = await check(HealthCheckRequest(service=service))
    return str(HealthCheckResponse.ServingStatus.Name(answer.status))


@each_service
async def test_process_service_and_event_loop_are_healthy(shop: RunningShop, name: str) -> None:
    checked = ["", full_name(name), "liveness"]
    assert [await health_of(shop.channels[name], service) for service in checked] == ["SERVING"] * 3


@each_service
async def test_the_health_of_an_unknown_service_is_not_found(shop: RunningShop, name: str) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await health_of(shop.channels[name], "shop.NoService")
    assert refused.value.code() is grpc.StatusCode.NOT_FOUND


@each_service
async def test_reflection_describes_the_service(shop: RunningShop, name: str) -> None:
    described = await asyncio.to_thread(methods_at, shop.processes[name].address)
    assert full_name(name) in {method.containing_service.full_name for method in described}


@each_service
async def test_an_unknown_method_is_unimplemented(shop: RunningShop, name: str) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await shop.channels[name].unary_unary(f"/{full_name(name)}/Nothing", bytes, bytes)(b"")
    assert refused.value.code() is grpc.StatusCode.UNIMPLEMENTED


@each_service
async def test_every_log_line_is_json(shop: RunningShop, name: str) -> None:
    # A release of gRPC that no longer supports one of our GRPC_EXPERIMENTS logs a plain line at the start.
    lines = shop.processes[name].log_path.read_text().splitlines()
    assert {json.loads(line)["service"] for line in lines} == {name}
