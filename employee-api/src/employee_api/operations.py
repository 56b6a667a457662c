"""The table of operations: what the API serves and describes.

A handler's annotations say what it takes and returns.
"""

from functools import partial
from http import HTTPStatus

from employee_api import errors, health
from employee_api.access import Access
from employee_api.activities import ActivityHandlers
from employee_api.auth.logins import LoginBody, LoginHandlers
from employee_api.exports.handlers import ExportHandlers, ExportParameters
from employee_api.exports.queries import Table, csv_example
from employee_api.http.inputs import RequestInput
from employee_api.http.operations import Operation
from employee_api.tasks.comments import CommentHandlers
from employee_api.tasks.tasks import TaskHandlers
from employee_api.users.accounts import UserHandlers
from employee_api.users.registration import NewUserBody, RegistrationHandlers

_OPEN, _SELF, _SESSION, _MANAGEMENT, _SUBORDINATE = Access
_CREATED = HTTPStatus.CREATED
_TAGGED = ("ETag",)
_COOKIE = ("Set-Cookie",)
# A password of a megabyte gets the same response as any other wrong password.
_MAX_LOGIN_BYTES = 2 * 1024 * 1024
_ANY_QUERY = partial(RequestInput, ignores_query=True)
_LOGIN = partial(LoginBody, error_text="Email and password required", ignores_query=True, max_bytes=_MAX_LOGIN_BYTES)
_NEW_USER = partial(NewUserBody, error_text="Name, email and password required", ignores_query=True)
_EXPORT = partial(ExportParameters, error_text="Month must be YYYY-MM")

_NO_USER, _NO_TASK, _NO_COMMENT = errors.UserNotFound(), errors.TaskNotFound(), errors.CommentNotFound()
_CHANGED = errors.PreconditionFailed()
_TOO_HIGH = (errors.HigherRoleRequired(),)
_AUTHOR_ONLY = (errors.NotTheAuthor(),)
_UNKNOWN_USERS = (errors.UnknownAssignee(), errors.UnknownReporter())
_REGISTRATION_REFUSALS = (errors.RegistrationClosed(), errors.InvitationRequired(), errors.InvalidInvitation())


def operations(
    *,
    logins: LoginHandlers,
    registration: RegistrationHandlers,
    users: UserHandlers,
    tasks: TaskHandlers,
    comments: CommentHandlers,
    activities: ActivityHandlers,
    exports: ExportHandlers,
) -> list[Operation]:
    passwords, sign_ins, sessions, tokens = logins.passwords, logins.sign_ins, logins.sessions, logins.tokens
    new_user = partial(_NEW_USER, strict=users.authorizer.enforced)
    return [
        Operation(
            "POST", "/api/auth/login", "Log in by e-mail and password", logins.login, reads=_LOGIN, headers=_COOKIE,
            failures=(errors.InvalidCredentials(), errors.TooManyPasswords()),
            enforced_failures=(errors.TooManyFailedLogins(),),
        ),
        Operation("POST", "/api/auth/logout", "End the session, if there is one", logins.logout, headers=_COOKIE),
        Operation(
            "GET", "/api/auth/sign-ins", "List the attempts to sign in to your account, newest first",
            sign_ins.list_sign_ins, _SELF, named="list_own_sign_ins",
        ),
        Operation(
            "GET", "/api/auth/users/{id}/sign-ins", "List the attempts to sign in to an account, newest first",
            sign_ins.list_sign_ins, _SUBORDINATE, failures=(_NO_USER,),
        ),
        Operation(
            "PUT", "/api/auth/me/password", "Change your password, and end your other sessions",
            logins.change_own_password, _SELF,
            failures=(errors.WeakPassword(field="new_password"), errors.WrongPassword(), errors.TooManyPasswords()),
            enforced_failures=(errors.TooManyFailedLogins(),),
        ),
        Operation(
            "POST", "/api/auth/users/{id}/password-reset", "Let an employee set a new password once, within 24 hours",
            passwords.allow_password_reset, _SUBORDINATE, failures=(_NO_USER,),
        ),
        Operation(
            "POST", "/api/auth/password-reset", "Set a new password with the token of a reset",
            passwords.reset_password,
            failures=(errors.WeakPassword(), errors.InvalidPasswordReset(), errors.TooManyPasswords()),
        ),
        Operation(
            "POST", "/api/auth/register", "Register as an employee", registration.register,
            reads=new_user, status=_CREATED, repeatable=True,
            failures=(errors.WeakPassword(), *_REGISTRATION_REFUSALS, errors.EmailTaken(), errors.TooManyPasswords()),
            enforced_failures=(errors.TooManyRegistrations(),),
        ),
        Operation("GET", "/api/auth/users", "List all employees", users.list_users, _SESSION, reads=_ANY_QUERY),
        Operation(
            "POST", "/api/auth/users", "Add an employee", users.add_user, _MANAGEMENT,
            reads=new_user, status=_CREATED, repeatable=True, enforced_failures=_TOO_HIGH,
            failures=(errors.WeakPassword(), errors.EmailTaken(), errors.TooManyPasswords()),
        ),
        Operation(
            "DELETE", "/api/auth/users/{id}", "Delete an employee and remove them from all tasks",
            users.delete_user, _SUBORDINATE, reads=_ANY_QUERY,
            failures=(_NO_USER,), enforced_failures=(errors.LastManagementUser(),),
        ),
        Operation(
            "POST", "/api/auth/invitations", "Invite someone to register with a role",
            registration.create_invitation, _MANAGEMENT, status=_CREATED, failures=(errors.RegistrationClosed(),),
            enforced_failures=_TOO_HIGH,
        ),
        Operation(
            "GET", "/api/auth/invitations", "List the invitations that have not expired, newest first",
            registration.list_invitations, _MANAGEMENT,
        ),
        Operation(
            "DELETE", "/api/auth/invitations/{id}", "Withdraw an unused invitation",
            registration.delete_invitation, _MANAGEMENT, failures=(errors.InvitationNotFound(),),
            enforced_failures=_TOO_HIGH,
        ),
        Operation("GET", "/api/auth/me", "Get your own account", users.get_me, _SELF, headers=_TAGGED),
        Operation(
            "PATCH", "/api/auth/me", "Change your own name", users.change_me, _SELF,
            headers=_TAGGED, failures=(_CHANGED,),
        ),
        Operation(
            "GET", "/api/auth/users/{id}", "Get an employee's account", users.get_user, _SESSION,
            headers=_TAGGED, failures=(_NO_USER,),
        ),
        Operation(
            "PATCH", "/api/auth/users/{id}", "Change an employee's name, e-mail, role or department",
            users.change_user, _SUBORDINATE, headers=_TAGGED,
            failures=(_NO_USER, _CHANGED, errors.EmailTaken(), errors.LastManagementUser("given another role")),
        ),
        Operation(
            "POST", "/api/auth/users/{id}/deactivate", "End an employee's access, without deleting them",
            users.deactivate_user, _SUBORDINATE, headers=_TAGGED,
            failures=(_NO_USER, errors.LastManagementUser("deactivated")),
        ),
        Operation(
            "POST", "/api/auth/users/{id}/reactivate", "Let a deactivated employee log in again",
            users.reactivate_user, _SUBORDINATE, headers=_TAGGED, failures=(_NO_USER,),
        ),
        Operation("GET", "/api/auth/sessions", "List your sessions", sessions.list_sessions, _SELF),
        Operation(
            "DELETE", "/api/auth/sessions/{id}", "End one of your sessions",
            sessions.end_session, _SELF, failures=(errors.SessionNotFound(),),
        ),
        Operation(
            "DELETE", "/api/auth/sessions", "End all your sessions but this one", sessions.end_other_sessions, _SELF
        ),
        Operation(
            "GET", "/api/auth/users/{id}/sessions", "List an employee's sessions",
            sessions.list_sessions, _SUBORDINATE, named="list_sessions_of_user", failures=(_NO_USER,),
        ),
        Operation(
            "DELETE", "/api/auth/users/{id}/sessions", "End all sessions of an employee",
            sessions.end_sessions_of_user, _SUBORDINATE, failures=(_NO_USER,),
        ),
        Operation("GET", "/api/auth/tokens", "List your API tokens", tokens.list_tokens, _SELF),
        Operation(
            "POST", "/api/auth/tokens", "Create an API token for a program that acts for you",
            logins.create_token, _SELF, status=_CREATED,
            failures=(errors.TooManyTokens(), errors.WrongPassword(), errors.TooManyPasswords()),
            enforced_failures=(errors.TooManyFailedLogins(),),
        ),
        Operation(
            "DELETE", "/api/auth/tokens/{id}", "Revoke one of your API tokens",
            tokens.revoke_token, _SELF, failures=(errors.TokenNotFound(),),
        ),
        Operation(
            "GET", "/api/auth/users/{id}/tokens", "List an employee's API tokens",
            tokens.list_tokens, _SUBORDINATE, named="list_tokens_of_user", failures=(_NO_USER,),
        ),
        Operation(
            "DELETE", "/api/auth/users/{id}/tokens/{token_id}", "Revoke an employee's API token",
            tokens.revoke_token_of_user, _SUBORDINATE, failures=(_NO_USER, errors.TokenNotFound()),
        ),
        Operation("GET", "/api/tasks", "List tasks: search, filter, sort", tasks.list_tasks, _SESSION),
        Operation(
            "POST", "/api/tasks", "Create a task", tasks.add_task, _SESSION,
            status=_CREATED, headers=_TAGGED, repeatable=True, failures=_UNKNOWN_USERS,
        ),
        Operation(
            "POST", "/api/tasks/assign", "Assign several tasks: all of them or none", tasks.assign_tasks, _SESSION,
            repeatable=True, failures=(errors.SomeTasksNotFound(), errors.UnknownAssignee()),
        ),
        Operation(
            "GET", "/api/tasks/{id}", "Get a task", tasks.get_task, _SESSION, headers=_TAGGED, failures=(_NO_TASK,)
        ),
        Operation(
            "PATCH", "/api/tasks/{id}", "Change some fields of a task", tasks.change_task, _SESSION,
            headers=_TAGGED, failures=(_NO_TASK, _CHANGED, *_UNKNOWN_USERS),
        ),
        Operation(
            "DELETE", "/api/tasks/{id}", "Delete a task and its comments",
            tasks.delete_task, _MANAGEMENT, failures=(_NO_TASK, _CHANGED),
        ),
        Operation(
            "GET", "/api/tasks/{id}/comments", "List the comments on a task, newest first",
            comments.list_comments, _SESSION, failures=(_NO_TASK,),
        ),
        Operation(
            "POST", "/api/tasks/{id}/comments", "Comment on a task", comments.add_comment, _SESSION,
            status=_CREATED, repeatable=True, failures=(_NO_TASK, errors.UnknownAuthor()),
        ),
        Operation(
            "GET", "/api/tasks/{id}/comments/{comment_id}", "Get a comment",
            comments.get_comment, _SESSION, failures=(_NO_TASK, _NO_COMMENT),
        ),
        Operation(
            "PATCH", "/api/tasks/{id}/comments/{comment_id}", "Edit a comment of one's own",
            comments.edit_comment, _SESSION, failures=(_NO_TASK, _NO_COMMENT), enforced_failures=_AUTHOR_ONLY,
        ),
        Operation(
            "DELETE", "/api/tasks/{id}/comments/{comment_id}",
            "Delete a comment: one's own, or any with a management role",
            comments.delete_comment, _SESSION, failures=(_NO_TASK, _NO_COMMENT), enforced_failures=_AUTHOR_ONLY,
        ),
        Operation(
            "GET", "/api/activities", "List activities, newest first", activities.list_activities, _MANAGEMENT
        ),
        *(
            Operation(
                "GET", f"/api/export/{table}", f"Export the {table} created in a month, or all of them, as CSV",
                exports.export, _MANAGEMENT, named=f"export_{table}", reads=_EXPORT,
                csv_example=partial(csv_example, table),
                failures=(errors.TooManyExports(),),
            )
            for table in Table
        ),
        Operation(
            "GET", "/healthz", "Whether the process is alive", health.probe,
            named="healthz", reads=_ANY_QUERY, served=False,
        ),
        Operation(
            "GET", "/readyz", "Whether the database answers and its migrations have run", health.probe,
            named="readyz", reads=_ANY_QUERY, failures=(errors.NotReady(),), served=False,
        ),
    ]  # fmt: skip
