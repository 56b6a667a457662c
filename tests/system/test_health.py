"""Every service provides health checks and structured logs."""

import asyncio
import json

import grpc
import pytest
from grpc_health.v1.health_pb2 import HealthCheckRequest, HealthCheckResponse

from shop_cli.local.processes import Process
from shop_cli.local.workspace import discover_services
from shop_kit.hostile import grpc_calls, http_requests, send
from shop_kit.http2 import PREFACE
from shop_kit.running_shop import RunningShop
from shop_kit.smoke import smoke_calls

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


CARD, WORD = b"4111111111111111", b"swordfish"
BROKEN = [bytes.fromhex("1603010005010000010303"), PREFACE[:9]]


@each_service
async def test_every_log_line_is_json_and_quotes_no_broken_client(shop: RunningShop, name: str) -> None:
    path = f"/{smoke_calls('')[name].method}".encode()
    hostile = [*BROKEN, *grpc_calls(CARD, path), *grpc_calls(WORD, path)]
    await asyncio.gather(*(send(shop.processes[name].port, sent) for sent in hostile))
    await health_of(shop.channels[name], "")
    # A release of gRPC that no longer supports one of our GRPC_EXPERIMENTS logs a plain line at the start.
    lines = shop.processes[name].log_path.read_text().splitlines()
    assert {json.loads(line)["service"] for line in lines} == {name}
    assert [line for line in lines if CARD.decode() in line or WORD.decode() in line] == []
    assert not [message for message in shop.received.messages if CARD in message.SerializeToString()]


async def test_the_storefront_quotes_no_broken_client(storefront: Process) -> None:
    for sent in http_requests(CARD.decode()):
        await send(storefront.port, sent)
    lines = storefront.log_path.read_text().splitlines()
    assert {json.loads(line)["service"] for line in lines} == {"storefront"}
    assert [line for line in lines if CARD.decode() in line] == []
