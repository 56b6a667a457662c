"""Rolling restart under load: a service's two replicas are restarted one after the other, and no call fails."""

import asyncio
import uuid
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import grpc
import pytest

from chassis.errors import DomainError
from chassis.rpc.client import channel
from shop_cli.local.ports import reserved
from shop_cli.local.processes import Process
from shop_cli.local.workspace import Program
from shop_kit.running_shop import RunningShop
from shop_kit.smoke import by_full_name, smoke_call
from shop_kit.waiting import wait_until
from shop_smoke import send

CALLERS = 4
PAUSE_SECONDS = 0.02
# Long enough for clients to receive NOT_SERVING and switch to the other replica, on a busy machine too.
DRAIN = {"DRAIN_SECONDS": "3"}


@dataclass
class Load:
    """Callers that repeat a service's smoke call until they are stopped."""

    program: Program
    channels: Mapping[str, grpc.aio.Channel]
    succeeded: int = 0
    failures: list[str] = field(default_factory=list)
    stopped: bool = False

    async def run(self) -> None:
        while not self.stopped:
            unique = uuid.uuid4().hex
            try:
                await send(smoke_call(self.program, unique), self.channels, key=unique)
            except (DomainError, grpc.aio.AioRpcError) as error:
                self.failures.append(f"{type(error).__name__}: {error}")
            else:
                self.succeeded += 1
            await asyncio.sleep(PAUSE_SECONDS)

    async def wait_for_calls(self, more: int) -> None:
        """Wait until so many more calls have succeeded, or one has failed."""
        enough = self.succeeded + more
        await wait_until(lambda: self.succeeded >= enough or self.failures)


def instance_id(port: int) -> dict[str, str]:
    return {"OTEL_RESOURCE_ATTRIBUTES": f"service.instance.id={port}"}


async def wait_for_new_spans(shop: RunningShop, replica: Process) -> None:
    """Wait until a replica exports spans of calls that it has served from now on."""

    def exported() -> int:
        return sum(span.instance == str(replica.port) for span in shop.received.spans)

    before = exported()
    await wait_until(lambda: exported() > before)


@asynccontextmanager
async def two_replicas(original: Process, folder: Path) -> AsyncIterator[tuple[Process, Process]]:
    """Run two more processes of a service, each with its own data folder because embedded stores are not shared."""
    with reserved(2) as ports:
        replicas = [
            Process(
                *(original.program, port, {**original.environment, **DRAIN, **instance_id(port)}, folder / str(port)),
                certificates=original.certificates,
            )
            for port in ports
        ]
        try:
            for replica in replicas:
                await replica.start()
            for replica in replicas:
                await replica.wait_until_serving()
            yield replicas[0], replicas[1]
        finally:
            for replica in replicas:
                await replica.stop()


# One without a store, and one with a database and work in the background; the other services drain as these do.
@pytest.mark.parametrize("name", ["recommendation", "checkout"])
async def test_restarting_replicas_one_by_one_under_load_fails_no_call(
    shop: RunningShop, name: str, tmp_path: Path
) -> None:
    original = shop.processes[name]
    async with two_replicas(original, tmp_path) as replicas:
        addresses = ",".join(replica.address for replica in replicas)
        service = smoke_call(original.program, "").service
        balanced = channel(
            *(f"ipv4:///{addresses}", service),
            timeout_seconds=60,
            certificates=original.certificates,
            server_name="localhost",
        )
        load = Load(original.program, {**by_full_name(shop.channels), service: balanced})
        callers = [asyncio.create_task(load.run()) for _ in range(CALLERS)]
        first, second = replicas
        await load.wait_for_calls(more=20)
        statuses = [await first.stop()]
        await first.restart()
        await wait_for_new_spans(shop, first)
        statuses.append(await second.stop())
        await load.wait_for_calls(more=20)
        load.stopped = True
        await asyncio.gather(*callers)
        await balanced.close()
    assert load.failures == []
    assert statuses == [0, 0]
