"""Endpoints for users: register, list, add, delete."""

from collections.abc import Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import TypeVar

from typing_extensions import override

from chassis.errors import FieldViolation
from employee_api.access import Access
from employee_api.errors import BadRequest
from employee_api.fields import parse_id
from employee_api.http.inputs import JsonBody, NoInput
from employee_api.http.operations import Call, Endpoint, Operation
from employee_api.http.outputs import JsonOutput
from employee_api.schemas import Deleted
from employee_api.users.errors import (
    EmailTaken,
    InvalidInvitation,
    InvitationRequired,
    LastManagementUser,
    RegistrationClosed,
    TooManyPasswords,
    TooManyRegistrations,
    UserNotFound,
    WeakPassword,
)
from employee_api.users.new_users import NewUserPreparer
from employee_api.users.registration import Registration
from employee_api.users.registration_limiter import RegistrationLimiter
from employee_api.users.repository import NewUser, UserRepository
from employee_api.users.rules import email_key
from employee_api.users.schemas import RegistrationInput, UserInput, UserOutput

_USERS = "/api/auth/users"
_REQUIRED = "Name, email and password required"
_REGISTRATION_REFUSALS = (RegistrationClosed(), InvitationRequired(), InvalidInvitation())
_CREATED = JsonOutput(UserOutput, HTTPStatus.CREATED)


UserInputT = TypeVar("UserInputT", bound=UserInput)


@dataclass(frozen=True)
class _NewUserBody(JsonBody[UserInputT]):
    """A new user. With `strict`, errors name what is too long, and an e-mail of white space is none."""

    strict: bool = False

    @override
    def error(self, text: str = "Invalid request", violations: Sequence[FieldViolation] = ()) -> BadRequest:
        too_long = bool(violations) and all(violation.rule.startswith("is too long") for violation in violations)
        return BadRequest(text, violations) if self.strict and too_long else super().error(text, violations)

    @override
    def validate(self, value: object) -> UserInputT:
        new = super().validate(value)
        if self.strict and not email_key(new.email):
            raise self.error(violations=[FieldViolation("email", "must not be empty")])
        return new


class UserEndpoints:
    """Operations on users.

    With `enforced` authorization the last management user can't be deleted.
    """

    def __init__(
        self,
        users: UserRepository,
        new_users: NewUserPreparer,
        registration: Registration,
        registration_limiter: RegistrationLimiter | None,
        *,
        enforced: bool,
    ) -> None:
        self._users = users
        self._new_users = new_users
        self._registration = registration
        self._registration_limiter = registration_limiter
        self._enforced = enforced

    def operations(self) -> list[Operation]:
        new_registration = _NewUserBody(RegistrationInput, _REQUIRED, ignores_query=True, strict=self._enforced)
        new_user = _NewUserBody(UserInput, _REQUIRED, ignores_query=True, strict=self._enforced)
        return [
            Endpoint(
                "POST", "/api/auth/register", "Register as an employee",
                new_registration, _CREATED, self.register, repeatable=True,
                failures=(WeakPassword(), *_REGISTRATION_REFUSALS, EmailTaken(), TooManyPasswords()),
                enforced_failures=(TooManyRegistrations(),),
            ),
            Endpoint(
                "GET", _USERS, "List all employees",
                NoInput(ignores_query=True), JsonOutput(list[UserOutput]), self.list_users, access=Access.SESSION,
            ),
            Endpoint(
                "POST", _USERS, "Add an employee", new_user, _CREATED, self.add_user, repeatable=True,
                access=Access.MANAGEMENT, failures=(WeakPassword(), EmailTaken(), TooManyPasswords()),
            ),
            Endpoint(
                "DELETE", f"{_USERS}/{{id}}", "Delete an employee and remove them from all tasks",
                NoInput(ignores_query=True), JsonOutput(Deleted), self.delete_user,
                access=Access.MANAGEMENT, failures=(UserNotFound(),), enforced_failures=(LastManagementUser(),),
            ),
        ]  # fmt: skip

    async def register(self, call: Call[RegistrationInput]) -> UserOutput:
        invitation = call.input.invite or None
        await self._registration.check(invitation)
        if self._registration_limiter is not None:
            await self._registration_limiter.count(call.caller.address)
        new = await self._prepare(call)
        return _created(call, await self._registration.register(new, invitation, call.actor))

    async def list_users(self, _call: Call[None]) -> list[UserOutput]:
        return await self._users.list_all()

    async def add_user(self, call: Call[UserInput]) -> UserOutput:
        return _created(call, await self._users.add(await self._prepare(call), call.actor))

    async def delete_user(self, call: Call[None]) -> Deleted:
        user_id = parse_id(call.request.path_params["id"])
        if user_id is None:
            raise UserNotFound
        await self._users.delete(user_id, call.actor, protect_last_management_user=self._enforced)
        return Deleted(id=user_id)

    async def _prepare(self, call: Call[UserInputT]) -> NewUser:
        return await call.while_connected(self._new_users.prepare(call.input))


def _created(call: Call[UserInputT], user: UserOutput) -> UserOutput:
    call.location(f"{_USERS}/{user.id}")
    return user
