"""The model's exports: their rows as CSV readers return them."""

from typing import Any

from shop_lab.world.employee_model.state import Actor, User
from shop_lab.world.employee_model.values import Anything, Call, Chosen, Reply
from shop_lab.world.employee_model.work import Work

_USER_FIELDS = ("id", "name", "email", "role", "dept", "created_at")


class Exports(Work):
    """Exports of all rows, or those of a month in UTC."""

    def export_users(self, call: Call, actor: Actor | None) -> Reply:
        rows = [{name: getattr(user, name) for name in _USER_FIELDS} for user in self.users]
        return _csv(
            [row for row, user in zip(rows, self.users, strict=True) if _is_in(call, user.at.strftime("%Y-%m"))]
        )

    def export_tasks(self, call: Call, actor: Actor | None) -> Reply:
        rows = []
        for task in self.tasks:
            names = {f"{role}_name": self._name(task.values[f"{role}_id"]) for role in ("assignee", "reporter")}
            if _is_in(call, task.at.strftime("%Y-%m")):
                rows.append(task.shown() | names)
        return _csv(rows)

    def export_activities(self, call: Call, actor: Actor | None) -> Reply:
        rows = []
        # In the order of the ids, which fall.
        for activity in sorted(self.activities, key=lambda each: (each.position[0], -each.position[1])):
            kind, subject_id, name = activity.subject
            row = {"id": activity.id, "created_at": activity.created_at, "action": activity.action}
            row |= {
                "actor_id": activity.actor and activity.actor.id,
                "actor_name": activity.actor and activity.actor.name,
            }
            if _is_in(call, activity.at.strftime("%Y-%m")):
                subject = {"subject_type": kind, "subject_id": subject_id, "subject_name": name}
                rows.append(row | subject | {"changes": Anything()})
        return _csv(rows)

    def _name(self, user_id: str | None) -> str | None:
        user: User | None = self.user(user_id)
        return user.name if user else None


def _is_in(call: Call, month: str) -> bool:
    return bool(call.query.get("month", month) == month)


def _csv(rows: list[dict[str, Any]]) -> Reply:
    return Reply(200, [{name: _cell(value) for name, value in row.items()} for row in rows])


def _cell(value: Any) -> Any:
    return "" if value is None else value if isinstance(value, Chosen | Anything) else str(value)
