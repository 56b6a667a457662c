"""shop.internal.Failpoints: enables failpoints in this process, with LAB=1."""

import asyncio
from dataclasses import dataclass
from functools import partial
from typing import Any

from typing_extensions import override

from chassis.errors import InvalidArgument
from chassis.failpoints import Failpoint, Failpoints
from chassis.rpc.calls import ServicerContext
from chassis.rpc.status import KINDS
from chassis.values.fields import require_text
from shop_internal import failpoints_pb2 as pb2
from shop_internal import failpoints_pb2_grpc

# The highest value of each field.
_HIGHEST = {
    "share": 1,
    "seconds_to_live": 3600,
    "hang": 1,
    "delay_seconds": 600,
    "burn_seconds": 10,
    "leak_bytes": 64 * 2**20,
}
_CODES = {code.name: kind for code, kind in KINDS.items()}


@dataclass(frozen=True)
class FailpointControl(failpoints_pb2_grpc.FailpointsServicer):
    _failpoints: Failpoints

    @override
    async def SetFailpoint(
        self, request: pb2.SetFailpointRequest, _context: ServicerContext
    ) -> pb2.SetFailpointResponse:
        wanted = request.failpoint
        require_text(wanted.id, "failpoint.id", max_length=64)
        if wanted.name not in self._failpoints.places:
            raise InvalidArgument.field("failpoint.name", "must be a method or place of this process")
        self._failpoints.enable(wanted.id, _from_wire(wanted), wanted.seconds_to_live)
        return pb2.SetFailpointResponse()

    @override
    async def ListFailpoints(
        self, _request: pb2.ListFailpointsRequest, _context: ServicerContext
    ) -> pb2.ListFailpointsResponse:
        now, response = asyncio.get_running_loop().time(), pb2.ListFailpointsResponse()
        for identifier, (found, expiry) in self._failpoints.limited().items():
            fields: dict[str, Any] = {"seconds_to_live": expiry.when() - now, found.action: found.value}
            response.failpoints.add(id=identifier, name=found.name, share=found.share, **fields)
        return response

    @override
    async def ClearFailpoints(
        self, request: pb2.ClearFailpointsRequest, _context: ServicerContext
    ) -> pb2.ClearFailpointsResponse:
        for identifier in request.ids or self._failpoints.limited():
            self._failpoints.end(identifier)
        return pb2.ClearFailpointsResponse()


def _from_wire(message: pb2.Failpoint) -> Failpoint:
    if (action := message.WhichOneof("action")) is None:
        raise InvalidArgument.field("failpoint.action", "must be given")
    for field in ("share", "seconds_to_live", action):
        if field in _HIGHEST and not 0 < getattr(message, field) <= _HIGHEST[field]:
            raise InvalidArgument.field(f"failpoint.{field}", f"must be above 0, and at most {_HIGHEST[field]}")
    code = message.error_code
    if action == "error_code" and code not in _CODES:
        raise InvalidArgument.field("failpoint.error_code", f"must be one of {', '.join(_CODES)}")
    # A kind of domain error, which is logged without a traceback: that would show this code.
    error = partial(_CODES.get(code, InvalidArgument), message=code.lower().replace("_", " "))
    return Failpoint(message.name, action, getattr(message, action), message.share, error=error)
