"""Handlers of activities."""

from dataclasses import dataclass

from employee_api.activities.repository import ActivityRepository
from employee_api.activities.schemas import ActivityPage, ActivityQuery
from employee_api.http.operations import Call


@dataclass(frozen=True)
class ActivityHandlers:
    activities: ActivityRepository

    async def list_activities(self, call: Call[ActivityQuery]) -> ActivityPage:
        return await self.activities.search(call.input)
