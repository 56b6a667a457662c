"""Handlers of exports: tables as CSV files."""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass

from starlette.responses import Response, StreamingResponse
from starlette.types import Send
from typing_extensions import override

from employee_api.exports.queries import Table
from employee_api.exports.schemas import ExportQuery
from employee_api.exports.streaming import CsvExporter
from employee_api.http.operations import Call

_CSV = "text/csv; charset=utf-8"


@dataclass(frozen=True)
class ExportHandlers:
    exporter: CsvExporter

    async def export_tasks(self, call: Call[ExportQuery]) -> Response:
        return await self._export(call, Table.TASKS)

    async def export_users(self, call: Call[ExportQuery]) -> Response:
        return await self._export(call, Table.USERS)

    async def export_activities(self, call: Call[ExportQuery]) -> Response:
        return await self._export(call, Table.ACTIVITIES)

    async def _export(self, call: Call[ExportQuery], table: Table) -> Response:
        query = call.input
        headers = {"content-disposition": f'attachment; filename="{table}-{query.month or "all"}.csv"'}
        if call.request.method == "HEAD":
            # Streamed, so that it has the headers of a file, whose length is unknown.
            return StreamingResponse(iter((b"",)), headers=headers, media_type=_CSV)
        chunks = self.exporter.stream(table, query.month, query.zone, bom=query.bom)
        # An error before the first chunk still gets a status of its own; a later one can only end the connection.
        first = await anext(chunks)
        return _ClosingResponse(_prepend(first, chunks), headers=headers, media_type=_CSV)


async def _prepend(first: bytes, chunks: AsyncGenerator[bytes]) -> AsyncGenerator[bytes]:
    async with aclosing(chunks):
        yield first
        async for chunk in chunks:
            yield chunk


class _ClosingResponse(StreamingResponse):
    """Closes its source when the client disconnects, instead of when the source is garbage-collected."""

    body_iterator: AsyncGenerator[bytes]

    @override
    async def stream_response(self, send: Send) -> None:
        async with aclosing(self.body_iterator):
            await super().stream_response(send)
