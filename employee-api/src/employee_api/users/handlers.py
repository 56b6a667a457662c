"""Handlers of users, accounts and invitations."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from typing_extensions import override

from chassis.errors import FieldViolation
from employee_api.errors import AuthenticationRequired, BadRequest, InvitationNotFound, UserNotFound
from employee_api.http.inputs import JsonBody
from employee_api.http.operations import Call, InputT
from employee_api.schemas import Deleted
from employee_api.users.accounts import AccountRepository
from employee_api.users.links import InvitationRepository
from employee_api.users.registration import NewUserPreparer, Registration
from employee_api.users.repository import UserRepository
from employee_api.users.rules import email_key
from employee_api.users.schemas import (
    AccountOutput,
    AccountPatch,
    CreatedInvitation,
    InvitationInput,
    InvitationOutput,
    OwnAccountPatch,
    RegistrationInput,
    UserInput,
    UserOutput,
)


@dataclass(frozen=True)
class NewUserBody(JsonBody):
    """A new user. With `strict`, errors name what is too long, and an e-mail of white space is none."""

    strict: bool = False

    @override
    def error(self, text: str = "Invalid request", violations: Sequence[FieldViolation] = ()) -> BadRequest:
        too_long = bool(violations) and all(violation.rule.startswith("is too long") for violation in violations)
        return BadRequest(text, violations) if self.strict and too_long else super().error(text, violations)

    @override
    def validate(self, value: object) -> Any:
        new = super().validate(value)
        if self.strict and not email_key(new.email):
            raise self.error(violations=[FieldViolation("email", "must not be empty")])
        return new


@dataclass(frozen=True)
class UserHandlers:
    """Registration, listing, adding and deleting users, and invitations to register.

    With `enforced` authorization the last management user can't be deleted.
    """

    users: UserRepository
    new_users: NewUserPreparer
    registration: Registration
    invitations: InvitationRepository
    enforced: bool

    async def register(self, call: Call[RegistrationInput]) -> UserOutput:
        invitation = call.input.invite or None
        await self.registration.check(invitation)
        await self.registration.count(call.caller.address)
        new = await call.while_connected(self.new_users.prepare(call.input))
        return _created(call, await self.registration.register(new, invitation, call.actor))

    async def list_users(self, _call: Call[None]) -> list[UserOutput]:
        return await self.users.list_all()

    async def add_user(self, call: Call[UserInput]) -> UserOutput:
        new = await call.while_connected(self.new_users.prepare(call.input))
        return _created(call, await self.users.add(new, call.actor))

    async def delete_user(self, call: Call[None]) -> Deleted:
        user_id = call.path_id(UserNotFound())
        await self.users.delete(user_id, call.actor, protect_last_management_user=self.enforced)
        return Deleted(id=user_id)

    async def create_invitation(self, call: Call[InvitationInput]) -> CreatedInvitation:
        await self.registration.check_open("create_invitation")
        return await self.invitations.create(call.input, call.actor)

    async def list_invitations(self, _call: Call[None]) -> list[InvitationOutput]:
        return await self.invitations.list_unexpired()

    async def delete_invitation(self, call: Call[None]) -> Deleted:
        invitation_id = call.path_id(InvitationNotFound())
        await self.invitations.delete(invitation_id, call.actor)
        return Deleted(id=invitation_id)


@dataclass(frozen=True)
class AccountHandlers:
    """Accounts: one's own, and the administration of others."""

    accounts: AccountRepository

    async def get_me(self, call: Call[None]) -> AccountOutput:
        try:
            return _tagged(call, await self.accounts.get(call.user.id))
        except UserNotFound as error:  # deleted meanwhile, which ended the session
            raise AuthenticationRequired from error

    async def change_me(self, call: Call[OwnAccountPatch]) -> AccountOutput:
        return _tagged(call, await self.accounts.update(call.user.id, call.input, call.user, call.if_match))

    async def get_user(self, call: Call[None]) -> AccountOutput:
        return _tagged(call, await self.accounts.get(call.path_id(UserNotFound())))

    async def change_user(self, call: Call[AccountPatch]) -> AccountOutput:
        user_id = call.path_id(UserNotFound())
        return _tagged(call, await self.accounts.update(user_id, call.input, call.actor, call.if_match))

    async def deactivate_user(self, call: Call[None]) -> AccountOutput:
        return _tagged(call, await self.accounts.deactivate(call.path_id(UserNotFound()), call.actor))

    async def reactivate_user(self, call: Call[None]) -> AccountOutput:
        return _tagged(call, await self.accounts.reactivate(call.path_id(UserNotFound()), call.actor))


def _created(call: Call[InputT], user: UserOutput) -> UserOutput:
    call.location(f"/api/auth/users/{user.id}")
    return user


def _tagged(call: Call[InputT], account: AccountOutput) -> AccountOutput:
    call.tag(account)
    return account
