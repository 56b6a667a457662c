"""Endpoints for API tokens: one's own, and those of others for management."""

from http import HTTPStatus

from employee_api.access import Access
from employee_api.auth.api_tokens import ApiTokenRepository
from employee_api.auth.errors import TokenNotFound, TooManyTokens
from employee_api.auth.schemas import NewTokenOutput, TokenInput, TokenOutput
from employee_api.http.inputs import JsonBody, NoInput
from employee_api.http.operations import Call, Endpoint, Operation
from employee_api.http.outputs import JsonOutput
from employee_api.schemas import Deleted
from employee_api.users.accounts import AccountRepository
from employee_api.users.errors import UserNotFound

_OWN = "/api/auth/tokens"
_OF_USER = "/api/auth/users/{id}/tokens"
_LIST = JsonOutput(list[TokenOutput])


class TokenEndpoints:
    def __init__(self, tokens: ApiTokenRepository, accounts: AccountRepository) -> None:
        self._tokens = tokens
        self._accounts = accounts

    def operations(self) -> list[Operation]:
        return [
            Endpoint("GET", _OWN, "List your API tokens", NoInput(), _LIST, self.list_tokens, access=Access.SELF),
            Endpoint(
                "POST", _OWN, "Create an API token for a program that acts for you",
                JsonBody(TokenInput), JsonOutput(NewTokenOutput, HTTPStatus.CREATED), self.create_token,
                access=Access.SELF, failures=(TooManyTokens(),),
            ),
            Endpoint(
                "DELETE", f"{_OWN}/{{id}}", "Revoke one of your API tokens",
                NoInput(), JsonOutput(Deleted), self.revoke_token, access=Access.SELF, failures=(TokenNotFound(),),
            ),
            Endpoint(
                "GET", _OF_USER, "List an employee's API tokens", NoInput(), _LIST, self.list_tokens_of_user,
                access=Access.MANAGEMENT, failures=(UserNotFound(),),
            ),
            Endpoint(
                "DELETE", f"{_OF_USER}/{{token_id}}", "Revoke an employee's API token",
                NoInput(), JsonOutput(Deleted), self.revoke_token_of_user,
                access=Access.MANAGEMENT, failures=(UserNotFound(), TokenNotFound()),
            ),
        ]  # fmt: skip

    async def list_tokens(self, call: Call[None]) -> list[TokenOutput]:
        return await self._tokens.list_all(call.user.id)

    async def create_token(self, call: Call[TokenInput]) -> NewTokenOutput:
        token = await self._tokens.create(call.user, call.input)
        call.location(f"{_OWN}/{token.id}")
        call.response_headers["cache-control"] = "no-store"
        return token

    async def revoke_token(self, call: Call[None]) -> Deleted:
        token_id = call.path_id(TokenNotFound())
        await self._tokens.revoke(call.user.id, token_id, call.user)
        return Deleted(id=token_id)

    async def list_tokens_of_user(self, call: Call[None]) -> list[TokenOutput]:
        account = await self._accounts.get(call.path_id(UserNotFound()))
        return await self._tokens.list_all(account.id)

    async def revoke_token_of_user(self, call: Call[None]) -> Deleted:
        user_id, token_id = call.path_id(UserNotFound()), call.path_id(TokenNotFound(), "token_id")
        await self._tokens.revoke(user_id, token_id, call.actor)
        return Deleted(id=token_id)
