"""Random requests about tasks, comments, activities and exports."""

from typing import Any

import hypothesis.strategies as st
from hypothesis.stateful import rule

from shop_lab.world.employee_model.machine import NOWHERE, Machine, callers, keys, matches, numbers
from shop_lab.world.employee_model.model import OPERATIONS
from shop_lab.world.employee_model.values import Call
from shop_lab.world.employee_model.work import PRIORITIES, STATUSES, Task

Caller = tuple[int | str, int]
_TITLES = (
    "Water plants",
    "water PLANTS",
    "\u00c9clair",
    "\u00e9clair",
    "100% _done_ /",
    "\u03a3\u0391\u03a3",
    "\u03c3\u03b1\u03c2",
    "\u0130stanbul",
    "stra\u00dfe",
)
_WORDS = (
    "water",
    "PLANTS water",
    "water zz",
    "%",
    "_",
    "/",
    "\u00c9",
    "\u03c3\u03b1\u03c2",
    "\u03a3\u0391\u03a3",
    "i",
    "SS",
    "zz",
)
titles = st.sampled_from(_TITLES)
dates = st.sampled_from([None, "2026-01-31", "2026-02-28", "2028-02-29", "0001-01-01", "9999-12-31"])
statuses, priorities = st.sampled_from(STATUSES), st.sampled_from(PRIORITIES)
fields: dict[str, st.SearchStrategy[Any]] = {
    "description": titles,
    "status": statuses,
    "priority": priorities,
    "due_date": dates,
}
references = {"assignee_id": numbers, "reporter_id": numbers}
new_tasks = st.fixed_dictionaries({"title": titles}, optional=fields | references)
task_patches = st.fixed_dictionaries({}, optional={"title": titles} | fields | references)
months = st.sampled_from(["2026-01", "2026-02", "2026-03", "2025-12"])
task_queries = st.fixed_dictionaries(
    {
        "limit": st.sampled_from(["1", "2", "3", "200"]),
        "sort": st.sampled_from(["created_at", "updated_at", "due_date", "priority", "title", "status"]),
        "order": st.sampled_from(["asc", "desc"]),
    },
    optional={
        "q": st.sampled_from(_WORDS),
        "month": months,
        "status": statuses,
        "priority": priorities,
        "assignee": numbers,
        "reporter": numbers,
        "unassigned": st.sampled_from(["true", "false"]),
        "due_before": dates.filter(bool),
    },
)
activity_queries = st.fixed_dictionaries(
    {"limit": st.sampled_from(["1", "3", "200"])},
    optional={
        "month": months,
        "subject": numbers,
        "actor": numbers,
        "action": st.sampled_from(["created", "updated", "deleted", "commented"]),
    },
)
bodies = st.sampled_from(["Done.", "\u2713 except for the cactus"])


class WorkRules(Machine):
    """Requests about tasks and what belongs to them."""

    @rule(caller=callers, new=new_tasks, key=keys)
    def add_task(self, caller: Caller, new: dict[str, Any], key: str | None) -> None:
        self.send("add_task", Call(self.token(caller), body=self._with_users(new), key=key))

    @rule(caller=callers, number=numbers, match=matches)
    def get_task(self, caller: Caller, number: int, match: str | None) -> None:
        tag = self._tag(match if match != "*" else None, number)
        self.send("get_task", Call(self.token(caller), (self._task_id(number),), if_none_match=tag))

    @rule(caller=callers, number=numbers, match=matches, patch=task_patches)
    def change_task(self, caller: Caller, number: int, match: str | None, patch: dict[str, Any]) -> None:
        body, tag = self._with_users(patch), self._tag(match, number)
        self.send("change_task", Call(self.token(caller), (self._task_id(number),), body=body, if_match=tag))

    @rule(caller=callers, number=numbers, match=matches)
    def delete_task(self, caller: Caller, number: int, match: str | None) -> None:
        if len(self.model.tasks) < number % 8:
            return
        tag = self._tag(match, number)
        self.send("delete_task", Call(self.token(caller), (self._task_id(number),), if_match=tag))

    @rule(caller=callers, chosen=st.lists(numbers, min_size=1, max_size=5), assignee=numbers | st.none(), key=keys)
    def assign_tasks(self, caller: Caller, chosen: list[int], assignee: int | None, key: str | None) -> None:
        ids = [self._task_id(number) for number in chosen]
        known = [task_id for task_id in ids if task_id != "nonsense"] or [NOWHERE]
        body = self._with_users({"task_ids": known, "assignee_id": assignee})
        self.send("assign_tasks", Call(self.token(caller), body=body, key=key))

    @rule(caller=callers, query=task_queries, number=numbers)
    def list_tasks(self, caller: Caller, query: dict[str, Any], number: int) -> None:
        known = {name: self._referenced(value) if isinstance(value, int) else value for name, value in query.items()}
        self.walk("list_tasks", Call(self.token(caller), query=self.cursor("tasks", number) or known))
        searched = {"sort": query["sort"], "limit": "3"} | {name: query[name] for name in ("q",) if name in query}
        self.walk("list_tasks", Call(self.token(caller), query=searched))

    @rule(caller=callers, query=activity_queries, number=numbers)
    def list_activities(self, caller: Caller, query: dict[str, Any], number: int) -> None:
        known = {name: self._referenced(value) if isinstance(value, int) else value for name, value in query.items()}
        if "subject" in known and self.model.tasks:
            known["subject"] = self.model.tasks[number % len(self.model.tasks)].id.value
        self.walk("list_activities", Call(self.token(caller), query=self.cursor("activities", number) or known))

    @rule(caller=callers, number=numbers, body=bodies, author=numbers | st.none(), key=keys)
    def add_comment(self, caller: Caller, number: int, body: str, author: int | None, key: str | None) -> None:
        new = self._with_users({"body": body} | ({} if author is None else {"author_id": author}))
        self.send("add_comment", Call(self.token(caller), (self._task_id(number),), body=new, key=key))

    @rule(
        caller=callers,
        number=numbers,
        name=st.sampled_from(["get_comment", "edit_comment", "delete_comment"]),
        body=bodies,
    )
    def use_comment(self, caller: Caller, number: int, name: str, body: str) -> None:
        commented = [task for task in self.model.tasks if task.comments]
        task: Task | None = commented[number % len(commented)] if commented else None
        args = (self.some_id(commented, number), self.some_id(task.comments if task else [], number * 7 % 100))
        self.send(name, Call(self.token(caller), args, body={"body": body} if name == "edit_comment" else None))

    @rule(caller=callers, number=numbers)
    def list_comments(self, caller: Caller, number: int) -> None:
        commented = [task for task in self.model.tasks if task.comments] or self.model.tasks
        task_id = self.some_id(commented, number)
        query = self.cursor(f"comments {task_id}", number) | {"limit": "2"}
        self.walk("list_comments", Call(self.token(caller), (task_id,), query=query))

    @rule(caller=callers, table=st.sampled_from(["users", "tasks", "activities"]), month=st.none() | months)
    def export(self, caller: Caller, table: str, month: str | None) -> None:
        self.send(f"export_{table}", Call(self.token(caller), query={} if month is None else {"month": month}))

    @rule(caller=callers, name=st.sampled_from(sorted(OPERATIONS)), number=numbers)
    def send_invalid(self, caller: Caller, name: str, number: int) -> None:
        """Send a parameter or field that is unknown, or of the wrong type."""
        operation = OPERATIONS[name]
        args = (NOWHERE,) * operation.path.count("{}")
        if name in {"list_users", "delete_user", "login", "register", "add_user"}:
            return  # they ignore what is unknown
        call = Call(self.token(caller), args, valid=False)
        if operation.method in {"GET", "DELETE"} or number % 2:
            call.query = {"unknown": "1"}
        if operation.method in {"POST", "PATCH", "PUT"}:
            call.body = {"unknown": 1}
        has_no_body = ("deactivate_user", "reactivate_user", "allow_password_reset", "logout")
        if name in has_no_body:
            call.query = {"unknown": "1"}
        self.send(name, call)

    def _task_id(self, number: int) -> str:
        return self.some_id(self.model.tasks, number)

    def _tag(self, match: str | None, number: int) -> str | None:
        tasks = self.model.tasks
        return self.matched(match, number, tasks[number % len(tasks)].shown() if tasks else None)

    def _referenced(self, number: int) -> str:
        found = self.user_id(number)
        return NOWHERE if found == "nonsense" else found

    def _with_users(self, body: dict[str, Any]) -> dict[str, Any]:
        """Replace numbers by the ids of users."""
        named = ("assignee_id", "reporter_id", "author_id")
        return {
            name: self._referenced(value) if name in named and value is not None else value
            for name, value in body.items()
        }
