"""Endpoints that list activities."""

from employee_api.access import Access
from employee_api.activities.repository import ActivityRepository
from employee_api.activities.schemas import ActivityPage, ActivityQuery
from employee_api.http.inputs import QueryParameters
from employee_api.http.operations import Call, Endpoint, Operation
from employee_api.http.outputs import JsonOutput


class ActivityEndpoints:
    def __init__(self, activities: ActivityRepository) -> None:
        self._activities = activities

    def operations(self) -> list[Operation]:
        return [
            Endpoint(
                "GET", "/api/activities", "List activities, newest first",
                QueryParameters(ActivityQuery), JsonOutput(ActivityPage), self.list_activities, access=Access.SESSION,
            ),
        ]  # fmt: skip

    async def list_activities(self, call: Call[ActivityQuery]) -> ActivityPage:
        return await self._activities.search(call.input)
