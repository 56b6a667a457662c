"""What every service answers to whoever runs it: health checks and reflection."""

import json

import grpc
import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from grpc_health.v1.health_pb2 import HealthCheckRequest, HealthCheckResponse
from grpc_reflection.v1alpha.reflection_pb2 import ServerReflectionRequest, ServerReflectionResponse

from shop_cli.local.workspace import discover_services
from shop_testkit.running_shop import RunningShop

each_service = pytest.mark.parametrize("name", [program.name for program in discover_services()])


def contract_name(name: str) -> str:
    return f"shop.{''.join(word.capitalize() for word in name.split('-'))}Service"


async def health_of(channel: grpc.aio.Channel, service: str) -> str:
    check = channel.unary_unary(
        "/grpc.health.v1.Health/Check", HealthCheckRequest.SerializeToString, HealthCheckResponse.FromString
    )
    answer = await check(HealthCheckRequest(service=service))
    return str(HealthCheckResponse.ServingStatus.Name(answer.status))


async def reflect(channel: grpc.aio.Channel, request: ServerReflectionRequest) -> ServerReflectionResponse:
    ask = channel.stream_stream(
        "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
        ServerReflectionRequest.SerializeToString,
        ServerReflectionResponse.FromString,
    )
    call = ask(iter([request]))
    async for answer in call:
        return answer
    raise AssertionError("no answer")


@each_service
async def test_the_process_the_service_and_its_event_loop_are_healthy(shop: RunningShop, name: str) -> None:
    asked = ["", contract_name(name), "liveness"]
    assert [await health_of(shop.channels[name], service) for service in asked] == ["SERVING"] * 3


@each_service
async def test_the_health_of_an_unknown_service_is_not_found(shop: RunningShop, name: str) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await health_of(shop.channels[name], "shop.NoService")
    assert refused.value.code() is grpc.StatusCode.NOT_FOUND


@each_service
async def test_reflection_lists_the_service(shop: RunningShop, name: str) -> None:
    answer = await reflect(shop.channels[name], ServerReflectionRequest(list_services=""))
    listed = {service.name for service in answer.list_services_response.service}
    assert {contract_name(name), "grpc.health.v1.Health"} <= listed


@each_service
async def test_reflection_describes_the_service(shop: RunningShop, name: str) -> None:
    request = ServerReflectionRequest(file_containing_symbol=contract_name(name))
    answer = await reflect(shop.channels[name], request)
    described = FileDescriptorProto.FromString(answer.file_descriptor_response.file_descriptor_proto[0])
    assert contract_name(name) in [f"{described.package}.{service.name}" for service in described.service]


@each_service
async def test_an_unknown_method_is_unimplemented(shop: RunningShop, name: str) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await shop.channels[name].unary_unary(f"/{contract_name(name)}/Nothing")(b"")
    assert refused.value.code() is grpc.StatusCode.UNIMPLEMENTED


@each_service
async def test_every_line_of_its_log_is_json(shop: RunningShop, name: str) -> None:
    # A switch of gRPC's that a new release has forgotten would be complained about here, in gRPC's own words.
    lines = shop.processes[name].log_path.read_text().splitlines()
    assert {json.loads(line)["service"] for line in lines} == {name}
