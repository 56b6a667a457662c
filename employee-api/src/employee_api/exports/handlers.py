from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from dataclasses import dataclass
from functools import cache, partial
from typing import Annotated, Literal
from zoneinfo import ZoneInfo, available_timezones

from pydantic import Field
from starlette.responses import Response, StreamingResponse
from starlette.types import Send
from typing_extensions import override

from chassis.errors import FieldViolation
from employee_api.access import Access
from employee_api.errors import ZONE_RULE, TooManyExports
from employee_api.exports.queries import Table, csv_example
from employee_api.exports.streaming import CsvExporter
from employee_api.fields import Month, require
from employee_api.http.inputs import QueryParameters
from employee_api.http.operations import Call, HandlerT, operation
from employee_api.schemas import Input


@cache
def _zones() -> set[str]:
    # Exclude "localtime", which differs between hosts, and "Factory", which is a placeholder.
    return available_timezones() - {"localtime", "Factory"}


class ExportQuery(Input):
    month: Month | None = Field(
        default=None, description="`YYYY-MM` by creation, in UTC or the zone `tz`; all rows when omitted"
    )
    tz: Annotated[str, require(lambda name: name in _zones(), ZONE_RULE)] | None = Field(
        default=None, description="time zone of `month` and of timestamps, such as `Europe/Berlin`; UTC when omitted"
    )
    bom: bool = Field(default=False, description="begin with a byte order mark, by which Excel recognizes UTF-8")
    separator: Literal[",", ";", "tab"] = Field(default=",", description="of cells; in many countries `;` is usual")


@dataclass(frozen=True)
class ExportParameters(QueryParameters):
    """An export's query. If `month` is invalid, the error message is `error_text`. Other errors name the parameter."""

    error_text: str | None = "Month must be YYYY-MM"

    @override
    def is_named(self, violation: FieldViolation) -> bool:
        return violation.field != "month"


_CSV = "text/csv; charset=utf-8"


def _operation(table: Table) -> Callable[[HandlerT], HandlerT]:
    return operation(
        "GET", f"/api/export/{table}", f"Export the {table} created in a month, or all of them, as CSV",
        Access.MANAGEMENT, named=f"export_{table}", reads=ExportParameters,
        csv_example=partial(csv_example, table), failures=(TooManyExports(),),
    )  # fmt: skip


class ExportHandlers(CsvExporter):
    @_operation(Table.TASKS)
    @_operation(Table.USERS)
    @_operation(Table.ACTIVITIES)
    async def export(self, call: Call[ExportQuery]) -> Response:
        """Stream the table named by the last segment of the path, as CSV."""
        query, table = call.input, Table(call.request.url.path.rpartition("/")[2])
        headers = {"content-disposition": f'attachment; filename="{table}-{query.month or "all"}.csv"'}
        if call.request.method == "HEAD":
            # Use a streaming response, which sends no Content-Length: HEAD must get the same headers as GET.
            return StreamingResponse(iter((b"",)), headers=headers, media_type=_CSV)
        separator = query.separator.replace("tab", "\t")
        zone = None if query.tz in (None, "UTC") else ZoneInfo(query.tz)
        chunks = self.stream(table, query.month, zone, bom=query.bom, separator=separator)
        await anext(chunks)  # raise errors now: once the response has started, they can't change its status
        return _ClosingResponse(chunks, headers=headers, media_type=_CSV)


class _ClosingResponse(StreamingResponse):
    """Closes the generator of chunks as soon as the client disconnects, instead of when it is garbage-collected."""

    body_iterator: AsyncGenerator[bytes]

    @override
    async def stream_response(self, send: Send) -> None:
        async with aclosing(self.body_iterator):
            await super().stream_response(send)
