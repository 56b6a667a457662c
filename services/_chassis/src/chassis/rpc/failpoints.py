"""Implements shop.internal.Failpoints, which enables failpoints in the running process. Served only with LAB=1."""

import asyncio
from dataclasses import dataclass

from chassis.errors import InvalidArgument
from chassis.failpoints import Failpoints
from chassis.rpc.calls import ServicerContext
from chassis.values.fields import require_text
from shop_internal import failpoints_pb2 as pb2
from shop_internal import failpoints_pb2_grpc

_MAX_SECONDS = 3600


@dataclass(frozen=True)
class FailpointControl(failpoints_pb2_grpc.FailpointsServicer):
    _failpoints: Failpoints

    async def SetFailpoint(
        self, request: pb2.SetFailpointRequest, _context: ServicerContext
    ) -> pb2.SetFailpointResponse:
        identifier = require_text(request.failpoint.id, "failpoint.id", max_length=64)
        seconds = request.failpoint.seconds_to_live
        if not 0 <= seconds <= _MAX_SECONDS:
            raise InvalidArgument.field("failpoint.seconds_to_live", f"must lie between 0 and {_MAX_SECONDS}")
        if not seconds:
            self._failpoints.end(identifier)
            return pb2.SetFailpointResponse()
        try:
            self._failpoints.enable(identifier, request.failpoint.specification, seconds)
        except ValueError as error:
            raise InvalidArgument.field("failpoint.specification", str(error)) from None
        return pb2.SetFailpointResponse()

    async def ListFailpoints(
        self, _request: pb2.ListFailpointsRequest, _context: ServicerContext
    ) -> pb2.ListFailpointsResponse:
        now, response = asyncio.get_running_loop().time(), pb2.ListFailpointsResponse()
        for identifier, expiry in self._failpoints.expiries.items():
            specification = self._failpoints.enabled[identifier].specification
            response.failpoints.add(id=identifier, specification=specification, seconds_to_live=expiry.when() - now)
        return response
