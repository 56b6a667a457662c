"""The model's tasks, comments, activities and exports."""

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from shop_lab.world.employee_model.people import People
from shop_lab.world.employee_model.state import Actor, User, change, user_of
from shop_lab.world.employee_model.values import Call, Chosen, Refused, Reply, Reversed, is_id, moment, new_id

STATUSES, PRIORITIES = ("todo", "in_progress", "review", "done"), ("low", "medium", "high", "urgent")
FIELDS = ("title", "description", "status", "priority", "assignee_id", "reporter_id", "due_date")
DEFAULTS = dict.fromkeys(FIELDS) | {"description": "", "status": "todo", "priority": "medium"}


@dataclass(eq=False)
class Comment:
    author: User | None
    body: str
    created_at: Chosen
    created: int
    edited_at: Chosen | None = None
    id: Chosen = field(default_factory=new_id)


@dataclass(eq=False)
class Task:
    """A task; `values` are its fields, with ids of users as text."""

    values: dict[str, Any]
    at: datetime
    created_at: Chosen
    updated_at: Chosen
    created: int
    updated: int
    comments: list[Comment] = field(default_factory=list)
    id: Chosen = field(default_factory=new_id)

    def shown(self) -> dict[str, Any]:
        return {"id": self.id} | self.values | {"created_at": self.created_at, "updated_at": self.updated_at}


class Work(People):
    """Operations on tasks and what belongs to them."""

    tasks: list[Task]

    def add_task(self, call: Call, actor: Actor | None) -> Reply:
        values = DEFAULTS | call.body
        if "reporter_id" not in call.body and actor is not None:
            values["reporter_id"] = actor.user.id.value
        self._require_users(values)
        task = Task(values, self.now, moment(self.now), moment(self.now), self.step, self.step)
        task.updated_at = task.created_at
        self.tasks.append(task)
        changes = {name: change(None, value) for name, value in values.items()}
        self.record(user_of(actor), "created", ("task", task.id, values["title"], changes))
        return Reply(201, task.shown(), tagged=True, location=("/api/tasks/", task.id))

    def get_task(self, call: Call, actor: Actor | None) -> Reply:
        return self.revalidated(call, Reply(200, self._task(call.args[0]).shown(), tagged=True))

    def change_task(self, call: Call, actor: Actor | None) -> Reply:
        if is_id(call.args[0]):
            self._require_users(call.body)
        task = self._task(call.args[0])
        self.require_match(call, task.shown())
        self._update(task, call.body, user_of(actor))
        return Reply(200, task.shown(), tagged=True)

    def _update(self, task: Task, requested: dict[str, Any], actor: User | None) -> bool:
        changed = {name: value for name, value in requested.items() if value != task.values[name]}
        changes = {name: change(task.values[name], value) for name, value in changed.items()}
        if changed:
            task.values |= changed
            task.updated_at, task.updated = moment(self.now), self.step
            self.record(actor, "updated", ("task", task.id, task.values["title"], changes))
        return bool(changed)

    def assign_tasks(self, call: Call, actor: Actor | None) -> Reply:
        assignee = {"assignee_id": call.body["assignee_id"]}
        self._require_users(assignee)
        tasks = [task for task in self.tasks if task.id.value in call.body["task_ids"]]
        if len(tasks) < len(set(call.body["task_ids"])):
            raise Refused(404, "A task was not found, and none was changed")
        tasks.sort(key=lambda task: task.id.value)
        changed = [task.id for task in tasks if self._update(task, assignee, user_of(actor))]
        return Reply(200, {"success": True, "changed": changed})

    def delete_task(self, call: Call, actor: Actor | None) -> Reply:
        task = self._task(call.args[0])
        self.require_match(call, task.shown())
        self.tasks.remove(task)
        changes = {name: change(value, None) for name, value in task.values.items()}
        self.record(user_of(actor), "deleted", ("task", task.id, task.values["title"], changes))
        return Reply(200, {"success": True, "id": task.id})

    def detach(self, user: User, actor: User | None) -> None:
        for task in sorted(self.tasks, key=lambda task: task.id.value):
            references = [name for name in ("assignee_id", "reporter_id") if task.values[name] == user.id.value]
            self._update(task, dict.fromkeys(references), actor)
            for comment in task.comments:
                comment.author = None if comment.author is user else comment.author

    def list_tasks(self, call: Call, actor: Actor | None) -> Reply:
        query = call.query
        sort, descending = query.get("sort", "created_at"), query.get("order", "desc") == "desc"
        found = [
            (_position(task, sort, descending=descending), task.shown()) for task in self.tasks if _matches(task, query)
        ]
        return Reply(200, self.page("tasks", query, f"{sort} {descending}", found))

    def list_comments(self, call: Call, actor: Actor | None) -> Reply:
        task = self._task(call.args[0])
        rows = [(Reversed(comment.created), _shown(task, comment)) for comment in task.comments]
        return Reply(200, self.page(f"comments {call.args[0]}", call.query, "created_at True", rows))

    def add_comment(self, call: Call, actor: Actor | None) -> Reply:
        task = self._task(call.args[0])
        author = actor.user if actor else self.user(call.body.get("author_id"))
        if actor is None and author is None and call.body.get("author_id") is not None:
            raise Refused(400, "Unknown author")
        comment = Comment(author, call.body["body"], moment(self.now), self.step)
        task.comments.append(comment)
        self._record_comment(task, actor, "commented", None, comment.id)
        return Reply(201, _shown(task, comment), location=("/api/tasks/", task.id, "/comments/", comment.id))

    def get_comment(self, call: Call, actor: Actor | None) -> Reply:
        return Reply(200, _shown(*self._comment(call)))

    def edit_comment(self, call: Call, actor: Actor | None) -> Reply:
        task, comment = self._comment(call)
        self._require_author(comment, actor)
        if comment.body != call.body["body"]:
            comment.body, comment.edited_at = call.body["body"], moment(self.now)
            self._record_comment(task, actor, "comment_edited", comment.id, comment.id)
        return Reply(200, _shown(task, comment))

    def delete_comment(self, call: Call, actor: Actor | None) -> Reply:
        if actor is not None and not actor.user.manages:
            self._require_author(self._comment(call)[1], actor)
        task, comment = self._comment(call)
        task.comments.remove(comment)
        self._record_comment(task, actor, "comment_deleted", comment.id, None)
        return Reply(200, {"success": True, "id": comment.id})

    def list_activities(self, call: Call, actor: Actor | None) -> Reply:
        query, rows = call.query, []
        for activity in self.activities:
            kind, subject_id, name = activity.subject
            actor_id = activity.actor and activity.actor.id
            values = {"subject": subject_id.value, "actor": actor_id and actor_id.value, "action": activity.action}
            values["month"] = f"{activity.at:%Y-%m}"
            if all(query[filtered] == value for filtered, value in values.items() if filtered in query):
                subject = {"subject_type": kind, "subject_id": subject_id, "subject_name": name}
                shown = {"id": activity.id, "actor_id": actor_id, "action": activity.action, **subject}
                position = (Reversed(activity.position[0]), activity.position[1])
                rows.append((position, shown | {"changes": activity.changes, "created_at": activity.created_at}))
        return Reply(200, self.page("activities", query, "created_at True", rows))

    def _require_users(self, values: dict[str, Any]) -> None:
        for name in ("assignee_id", "reporter_id"):
            if values.get(name) is not None and self.user(values[name]) is None:
                raise Refused(400, f"Unknown {name.removesuffix('_id')}")

    def _task(self, task_id: str) -> Task:
        for task in self.tasks:
            if task.id.value == task_id:
                return task
        raise Refused(404, "Task not found")

    def _comment(self, call: Call) -> tuple[Task, Comment]:
        if is_id(call.args[0]) and not is_id(call.args[1]):
            raise Refused(404, "Comment not found")
        task = self._task(call.args[0])
        for comment in task.comments:
            if comment.id.value == call.args[1]:
                return task, comment
        raise Refused(404, "Comment not found")

    def _require_author(self, comment: Comment, actor: Actor | None) -> None:
        if actor is not None and comment.author is not actor.user:
            self.refuse(403, "Only its author may do this")

    def _record_comment(self, task: Task, actor: Actor | None, action: str, before: Any, after: Any) -> None:
        changes = {"comment_id": change(before, after)}
        self.record(user_of(actor), action, ("task", task.id, task.values["title"], changes))


def _shown(task: Task, comment: Comment) -> dict[str, Any]:
    fields = {"id": comment.id, "task_id": task.id, "author_id": comment.author and comment.author.id}
    return fields | {"body": comment.body, "created_at": comment.created_at, "edited_at": comment.edited_at}


def _matches(task: Task, query: dict[str, Any]) -> bool:
    values = task.values
    actual = {"status": values["status"], "priority": values["priority"], "assignee": values["assignee_id"]}
    actual |= {"reporter": values["reporter_id"], "month": f"{task.at:%Y-%m}"}
    actual["unassigned"] = "true" if values["assignee_id"] is None else "false"
    if any(query[name] != value for name, value in actual.items() if name in query):
        return False
    if "due_before" in query and (values["due_date"] is None or values["due_date"] >= query["due_before"]):
        return False
    text = _lower(values["title"] + "\n" + values["description"])
    return all(_lower(word) in text for word in query.get("q", "").split())


def _position(task: Task, sort: str, *, descending: bool) -> Any:
    ranks = {"status": STATUSES, "priority": PRIORITIES}
    value: Any = {"created_at": task.created, "updated_at": task.updated}.get(sort)
    if sort in ranks:
        value = ranks[sort].index(task.values[sort])
    elif value is None:
        value = task.values[sort] if sort == "due_date" else _lower(task.values[sort])
    by_id = Reversed(task.id.value) if descending else task.id.value
    if value is None:
        return (True, 0, by_id)
    return (False, Reversed(value) if descending else value, by_id)


def _lower(text: str) -> str:
    """Turn each character into lower case by itself, as databases do."""
    return "".join({"İ": "i", "ς": "σ"}.get(character, character.lower()) for character in text).replace("ς", "σ")
