"""Endpoints that export tables as CSV files."""

from collections.abc import AsyncGenerator
from contextlib import aclosing

from starlette.responses import Response, StreamingResponse
from starlette.types import Send
from typing_extensions import override

from employee_api.access import Access
from employee_api.exports.errors import TooManyExports
from employee_api.exports.queries import Table, csv_example
from employee_api.exports.schemas import ExportParameters, ExportQuery
from employee_api.exports.streaming import CsvExporter
from employee_api.http.operations import Call, Endpoint, Operation
from employee_api.http.outputs import CSV, CsvOutput


class ExportEndpoints:
    def __init__(self, exporter: CsvExporter) -> None:
        self._exporter = exporter

    def operations(self) -> list[Operation]:
        handlers = {
            Table.TASKS: self.export_tasks,
            Table.USERS: self.export_users,
            Table.ACTIVITIES: self.export_activities,
        }
        return [
            Endpoint(
                "GET", f"/api/export/{table}", f"Export the {table} created in a month, or all of them, as CSV",
                ExportParameters(ExportQuery, error_text="Month must be YYYY-MM"), CsvOutput(csv_example(table)),
                handler, access=Access.MANAGEMENT, failures=(TooManyExports(),),
            )
            for table, handler in handlers.items()
        ]  # fmt: skip

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
            # Without a length, like the file itself.
            return StreamingResponse(iter(()), headers=headers, media_type=CSV)
        chunks = self._exporter.stream(table, query.month, query.zone, bom=query.bom)
        # An error before the first chunk still gets a status of its own; a later one can only end the connection.
        first = await anext(chunks)
        return _ClosingResponse(_prepend(first, chunks), headers=headers, media_type=CSV)


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
