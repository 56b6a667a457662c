"""Failpoints of running services, which end by themselves."""

import asyncio
import time
from collections.abc import Sequence
from contextlib import suppress

from chassis.errors import DomainError, InvalidArgument, Unavailable
from chassis.rpc import client
from shop_internal.failpoints_pb2 import Failpoint, SetFailpointRequest
from shop_internal.failpoints_pb2_grpc import FailpointsStub
from shop_lab.incidents.catalogue import FailpointInjection
from shop_lab.incidents.state import Inverse
from shop_lab.incidents.targets import CannotAct, Endpoint, Target

_CALL_SECONDS = 10.0


class FailpointMechanism:
    """Sets failpoints by `shop.internal.Failpoints`."""

    def prepare(self, injection: FailpointInjection, target: Target, token: str, seconds: float) -> Inverse:
        with target.endpoints(injection.service) as found:
            if len(found) <= (injection.pods or 0):
                raise CannotAct(f"{injection.service} runs in {len(found)} processes, which are too few for this fault")
            processes = [endpoint.process for endpoint in found[: injection.pods]]
        until = time.time() + seconds
        return {"service": injection.service, "id": token, "processes": processes, "until": until}

    def act(self, injection: FailpointInjection, target: Target, inverse: Inverse) -> None:
        with target.endpoints(injection.service) as found:
            chosen = [endpoint for endpoint in found if endpoint.process in inverse["processes"]]
            seconds = max(0.0, inverse["until"] - time.time())
            failpoint = Failpoint(id=inverse["id"], specification=injection.specification, seconds_to_live=seconds)
            try:
                asyncio.run(_set(chosen, failpoint))
            except InvalidArgument as error:
                raise CannotAct(f"{injection.service} refuses {injection.specification!r}: {error.message}") from error
            except DomainError as error:
                raise CannotAct(f"{injection.service} did not take the failpoint: {error.message}") from error

    def undo(self, target: Target, inverse: Inverse) -> None:
        with target.endpoints(inverse["service"]) as found:
            chosen = [endpoint for endpoint in found if endpoint.process in inverse["processes"]]
            with suppress(Unavailable):  # one that has just ended
                asyncio.run(_set(chosen, Failpoint(id=inverse["id"])))


async def _set(endpoints: Sequence[Endpoint], failpoint: Failpoint) -> None:
    async def set_at(endpoint: Endpoint) -> None:
        channel = client.channel(
            endpoint.address,
            "",
            timeout_seconds=_CALL_SECONDS,
            certificates=endpoint.certificates,
            server_name=endpoint.server_name,
        )
        try:
            await FailpointsStub(channel).SetFailpoint(SetFailpointRequest(failpoint=failpoint))
        finally:
            await channel.close()

    await asyncio.gather(*map(set_at, endpoints))
