"""Requests for exports."""

from collections.abc import Sequence
from functools import cache
from typing import Annotated
from zoneinfo import ZoneInfo, available_timezones

from pydantic import AfterValidator, Field
from typing_extensions import override

from chassis.errors import FieldViolation
from employee_api.errors import ZONE_RULE, BadRequest
from employee_api.fields import Month, broken_rule
from employee_api.http.inputs import QueryParameters
from employee_api.schemas import Input


@cache
def _zones() -> set[str]:
    # The host's own zone is not the same everywhere.
    return available_timezones() - {"localtime", "Factory"}


def _require_zone(name: str) -> str:
    if name not in _zones():
        raise broken_rule(ZONE_RULE)
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
