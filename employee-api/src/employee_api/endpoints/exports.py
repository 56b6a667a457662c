"""Tables as CSV files."""

from collections.abc import AsyncGenerator
from contextlib import aclosing

from starlette.responses import Response, StreamingResponse
from starlette.types import Send

from employee_api.auth import Access
from employee_api.csv_queries import Kind
from employee_api.errors import TooManyExports
from employee_api.exports import Exports
from employee_api.operations import CSV, Call, Operation
from employee_api.schemas import MonthQuery


class ExportEndpoints:
    """Operations that export."""

    def __init__(self, exports: Exports) -> None:
        self._exports = exports

    def operations(self) -> list[Operation]:
        """What this group serves."""
        handlers = {
            Kind.TASKS: self.export_tasks,
            Kind.USERS: self.export_users,
            Kind.ACTIVITIES: self.export_activities,
        }
        return [
            Operation(
                "GET", f"/api/export/{kind}", f"The {kind} created in a month, or all, as CSV", handler, CSV,
                access=Access.LEADER, query=MonthQuery, bad_request="Month must be YYYY-MM",
                failures=(TooManyExports(),),
            )
            for kind, handler in handlers.items()
        ]  # fmt: skip

    async def export_tasks(self, call: Call, asked: MonthQuery) -> Response:
        """Tasks."""
        return await self._file(call, Kind.TASKS, asked.month)

    async def export_users(self, call: Call, asked: MonthQuery) -> Response:
        """Users."""
        return await self._file(call, Kind.USERS, asked.month)

    async def export_activities(self, call: Call, asked: MonthQuery) -> Response:
        """Activities."""
        return await self._file(call, Kind.ACTIVITIES, asked.month)

    async def _file(self, call: Call, kind: Kind, month: str | None) -> Response:
        headers = {"content-disposition": f'attachment; filename="{kind}-{month or "all"}.csv"'}
        if call.request.method == "HEAD":
            return Response(b"", headers=headers, media_type=CSV)
        chunks = self._exports.stream(kind, month)
        # What fails before the first chunk is still an answer with a status; later it can only end the connection.
        first = await anext(chunks)
        return _ClosingResponse(_and_the_rest(first, chunks), headers=headers, media_type=CSV)


async def _and_the_rest(first: bytes, chunks: AsyncGenerator[bytes]) -> AsyncGenerator[bytes]:
    async with aclosing(chunks):
        yield first
        async for chunk in chunks:
            yield chunk


class _ClosingResponse(StreamingResponse):
    """Closes what it streams from as soon as the caller is gone, not when it is collected."""

    body_iterator: AsyncGenerator[bytes]

    async def stream_response(self, send: Send) -> None:
        """Send everything, and close the source whatever happens."""
        async with aclosing(self.body_iterator):
            await super().stream_response(send)
