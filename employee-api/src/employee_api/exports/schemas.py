"""Requests for exports, and their errors. The messages of errors are part of the contract."""

from collections.abc import Sequence
from functools import cache
from typing import Annotated
from zoneinfo import ZoneInfo, available_timezones

from pydantic import AfterValidator, Field
from typing_extensions import override

from chassis.errors import FieldViolation, ResourceExhausted
from employee_api.errors import BadRequest
from employee_api.fields import Month, broken_rule
from employee_api.http.inputs import QueryParameters
from employee_api.schemas import Input


class TooManyExports(ResourceExhausted):
    """Each export occupies a database connection until its client has read everything."""

    def __init__(self) -> None:
        super().__init__("Too many exports at once", retry_after_seconds=5)


class UnknownTimeZone(BadRequest):
    """The parameter `tz` names no time zone, or one that only a newer version of the database server knows."""

    RULE = "must be a time zone of the IANA database, such as Europe/Berlin"

    def __init__(self) -> None:
        super().__init__(f"tz {self.RULE}", [FieldViolation("tz", self.RULE)])


@cache
def _zones() -> set[str]:
    # The host's own zone is not the same everywhere.
    return available_timezones() - {"localtime", "Factory"}


def _require_zone(name: str) -> str:
    if name not in _zones():
        raise broken_rule(UnknownTimeZone.RULE)
    return name


class ExportQuery(Input):
    """Which rows to export, and how."""

    month: Month | None = Field(
        default=None, description="`YYYY-MM` by creation, in UTC or the zone `tz`; all rows when omitted"
    )
    tz: Annotated[str, AfterValidator(_require_zone)] | None = Field(
        default=None, description="time zone of `month` and of timestamps, such as `Europe/Berlin`; UTC when omitted"
    )
    bom: bool = Field(default=False, description="begin with a byte order mark, by which Excel recognizes UTF-8")

    @property
    def zone(self) -> ZoneInfo | None:
        """The time zone; None for UTC."""
        return None if self.tz in (None, "UTC") else ZoneInfo(self.tz)


class ExportParameters(QueryParameters):
    """The query string of an export. The operation's one text for invalid input is about the month only."""

    @override
    def error(self, text: str = "Invalid request", violations: Sequence[FieldViolation] = ()) -> BadRequest:
        if violations and all(violation.field != "month" for violation in violations):
            return BadRequest(text, violations)
        return super().error(text, violations)
