"""Requests for exports."""

from pydantic import Field

from employee_api.fields import Month
from employee_api.schemas import Input


class MonthQuery(Input):
    """Which rows to export."""

    month: Month | None = Field(default=None, description="`YYYY-MM` in UTC, by creation; all rows when omitted")
