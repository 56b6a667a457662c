"""The operations of the model, and how each is requested."""

import re
from dataclasses import dataclass, field
from typing import Any

from shop_lab.world.employee_model.credentials import Credentials
from shop_lab.world.employee_model.exports import Exports
from shop_lab.world.employee_model.state import User
from shop_lab.world.employee_model.values import Anything, Call, Refused, Reply
from shop_lab.world.employee_model.work import DEFAULTS, Task

_USER = {"role": None, "dept": None}
_REPEATABLE: dict[str, dict[str, Any]] = {
    "register": _USER,
    "add_user": _USER,
    "add_task": DEFAULTS,
    "assign_tasks": {},
    "add_comment": {"author_id": None},
}
_SECRETS = ("password", "invite")
_TABLE = """
login POST /api/auth/login open
logout POST /api/auth/logout open
register POST /api/auth/register open
list_users GET /api/auth/users session
add_user POST /api/auth/users management
delete_user DELETE /api/auth/users/{} management
get_me GET /api/auth/me self
change_me PATCH /api/auth/me self
change_own_password PUT /api/auth/me/password self
get_user GET /api/auth/users/{} session
change_user PATCH /api/auth/users/{} management
deactivate_user POST /api/auth/users/{}/deactivate management
reactivate_user POST /api/auth/users/{}/reactivate management
allow_password_reset POST /api/auth/users/{}/password-reset management
reset_password POST /api/auth/password-reset open
create_invitation POST /api/auth/invitations management
list_invitations GET /api/auth/invitations management
delete_invitation DELETE /api/auth/invitations/{} management
list_own_sign_ins GET /api/auth/sign-ins self
list_sign_ins GET /api/auth/users/{}/sign-ins management
list_sessions GET /api/auth/sessions self
end_session DELETE /api/auth/sessions/{} self
end_other_sessions DELETE /api/auth/sessions self
list_sessions_of_user GET /api/auth/users/{}/sessions management
end_sessions_of_user DELETE /api/auth/users/{}/sessions management
list_tokens GET /api/auth/tokens self
create_token POST /api/auth/tokens self
revoke_token DELETE /api/auth/tokens/{} self
list_tokens_of_user GET /api/auth/users/{}/tokens management
revoke_token_of_user DELETE /api/auth/users/{}/tokens/{} management
list_tasks GET /api/tasks session
add_task POST /api/tasks session
assign_tasks POST /api/tasks/assign session
get_task GET /api/tasks/{} session
change_task PATCH /api/tasks/{} session
delete_task DELETE /api/tasks/{} management
list_comments GET /api/tasks/{}/comments session
add_comment POST /api/tasks/{}/comments session
get_comment GET /api/tasks/{}/comments/{} session
edit_comment PATCH /api/tasks/{}/comments/{} session
delete_comment DELETE /api/tasks/{}/comments/{} session
list_activities GET /api/activities session
export_users GET /api/export/users management
export_tasks GET /api/export/tasks management
export_activities GET /api/export/activities management
"""


@dataclass(frozen=True)
class OperationOfModel:
    name: str
    method: str
    path: str
    access: str

    @property
    def scope(self) -> str:
        resource = self.path.split("/")[2]
        return f"{'users' if resource == 'auth' else resource}:{'read' if self.method == 'GET' else 'write'}"


OPERATIONS = {line.split()[0]: OperationOfModel(*line.split()) for line in _TABLE.strip().splitlines()}


@dataclass
class Model(Credentials, Exports):
    """The whole API."""

    tags: dict[str, str] = field(default_factory=dict)
    sign_ins: dict[User, list[tuple[int, dict[str, Any]]]] = field(default_factory=dict)
    tasks: list[Task] = field(default_factory=list)

    def perform(self, name: str, call: Call) -> Reply:
        """Change the model as the request does, and return what the response must be."""
        operation = OPERATIONS[name]
        remember = None
        try:
            actor = self.authorize(call.token, operation.access, operation.scope)
            if not call.valid:
                return Reply(400, {"error": Anything()})
            if call.key is not None and name in _REPEATABLE:
                known = {key: value for key, value in call.body.items() if key not in _SECRETS}
                found = self.replay(name, actor, call, _REPEATABLE[name] | known)
                if isinstance(found, Reply):
                    return found
                remember = found
            reply: Reply = getattr(self, name)(call, actor)
        except Refused as refused:
            return refused.reply
        reply.remember = remember
        return reply


def describes_every_operation(document: dict[str, Any]) -> bool:
    """Return whether the model has all operations of an API description that change or read state."""
    described = {
        (method.upper(), re.sub(r"\{[a-z_]+\}", "{}", path))
        for path, methods in document["paths"].items()
        for method in methods
        if path.startswith("/api/")
    }
    return described == {(operation.method, operation.path) for operation in OPERATIONS.values()}
