"""Endpoints for accounts: one's own, and the administration of others."""

from employee_api.access import Access
from employee_api.errors import AuthenticationRequired, PreconditionFailed
from employee_api.http.inputs import JsonBody, NoInput
from employee_api.http.operations import Call, Endpoint, InputT, Operation
from employee_api.http.outputs import JsonOutput
from employee_api.users.accounts import AccountRepository
from employee_api.users.errors import EmailTaken, LastManagementUser, UserNotFound
from employee_api.users.schemas import AccountOutput, AccountPatch, OwnAccountPatch

_ME = "/api/auth/me"
_USER = "/api/auth/users/{id}"
_ACCOUNT = JsonOutput(AccountOutput)
_ETAG = ("ETag",)


class AccountEndpoints:
    def __init__(self, accounts: AccountRepository) -> None:
        self._accounts = accounts

    def operations(self) -> list[Operation]:
        management, unknown = Access.MANAGEMENT, UserNotFound()
        return [
            Endpoint(
                "GET", _ME, "Get your own account", NoInput(), _ACCOUNT, self.get_me,
                headers=_ETAG, access=Access.SELF,
            ),
            Endpoint(
                "PATCH", _ME, "Change your own name", JsonBody(OwnAccountPatch), _ACCOUNT, self.change_me,
                headers=_ETAG, access=Access.SELF, failures=(PreconditionFailed(),),
            ),
            Endpoint(
                "GET", _USER, "Get an employee's account", NoInput(), _ACCOUNT, self.get_user,
                headers=_ETAG, access=Access.SESSION, failures=(unknown,),
            ),
            Endpoint(
                "PATCH", _USER, "Change an employee's name, e-mail, role or department",
                JsonBody(AccountPatch), _ACCOUNT, self.change_user, headers=_ETAG, access=management,
                failures=(unknown, PreconditionFailed(), EmailTaken(), LastManagementUser("given another role")),
            ),
            Endpoint(
                "POST", f"{_USER}/deactivate", "End an employee's access, without deleting them",
                NoInput(), _ACCOUNT, self.deactivate_user,
                headers=_ETAG, access=management, failures=(unknown, LastManagementUser("deactivated")),
            ),
            Endpoint(
                "POST", f"{_USER}/reactivate", "Let a deactivated employee log in again",
                NoInput(), _ACCOUNT, self.reactivate_user, headers=_ETAG, access=management, failures=(unknown,),
            ),
        ]  # fmt: skip

    async def get_me(self, call: Call[None]) -> AccountOutput:
        try:
            return _tagged(call, await self._accounts.get(call.user.id))
        except UserNotFound as error:  # deleted meanwhile, which ended the session
            raise AuthenticationRequired from error

    async def change_me(self, call: Call[OwnAccountPatch]) -> AccountOutput:
        return _tagged(call, await self._accounts.update(call.user.id, call.input, call.user, call.if_match))

    async def get_user(self, call: Call[None]) -> AccountOutput:
        return _tagged(call, await self._accounts.get(call.path_id(UserNotFound())))

    async def change_user(self, call: Call[AccountPatch]) -> AccountOutput:
        return _tagged(
            call, await self._accounts.update(call.path_id(UserNotFound()), call.input, call.actor, call.if_match)
        )

    async def deactivate_user(self, call: Call[None]) -> AccountOutput:
        return _tagged(call, await self._accounts.deactivate(call.path_id(UserNotFound()), call.actor))

    async def reactivate_user(self, call: Call[None]) -> AccountOutput:
        return _tagged(call, await self._accounts.reactivate(call.path_id(UserNotFound()), call.actor))


def _tagged(call: Call[InputT], account: AccountOutput) -> AccountOutput:
    call.tag(account)
    return account
