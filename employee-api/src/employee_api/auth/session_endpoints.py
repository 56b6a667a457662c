"""Endpoints for sessions: one's own, and those of others for management."""

from employee_api.access import Access
from employee_api.auth.authorization import session_token
from employee_api.auth.errors import SessionNotFound
from employee_api.auth.schemas import EndedSessions, SessionOutput
from employee_api.auth.sessions import SessionRepository
from employee_api.http.inputs import NoInput
from employee_api.http.operations import Call, Endpoint, Operation
from employee_api.http.outputs import JsonOutput
from employee_api.schemas import Deleted
from employee_api.users.accounts import AccountRepository
from employee_api.users.errors import UserNotFound

_OWN = "/api/auth/sessions"
_OF_USER = "/api/auth/users/{id}/sessions"
_LIST = JsonOutput(list[SessionOutput])


class SessionEndpoints:
    def __init__(self, sessions: SessionRepository, accounts: AccountRepository) -> None:
        self._sessions = sessions
        self._accounts = accounts

    def operations(self) -> list[Operation]:
        return [
            Endpoint("GET", _OWN, "List your sessions", NoInput(), _LIST, self.list_sessions, access=Access.SELF),
            Endpoint(
                "DELETE", f"{_OWN}/{{id}}", "End one of your sessions",
                NoInput(), JsonOutput(Deleted), self.end_session, access=Access.SELF, failures=(SessionNotFound(),),
            ),
            Endpoint(
                "DELETE", _OWN, "End all your sessions but this one",
                NoInput(), JsonOutput(EndedSessions), self.end_other_sessions, access=Access.SELF,
            ),
            Endpoint(
                "GET", _OF_USER, "List an employee's sessions", NoInput(), _LIST, self.list_sessions_of_user,
                access=Access.MANAGEMENT, failures=(UserNotFound(),),
            ),
            Endpoint(
                "DELETE", _OF_USER, "End all sessions of an employee",
                NoInput(), JsonOutput(EndedSessions), self.end_sessions_of_user,
                access=Access.MANAGEMENT, failures=(UserNotFound(),),
            ),
        ]  # fmt: skip

    async def list_sessions(self, call: Call[None]) -> list[SessionOutput]:
        return await self._sessions.list_active(call.user.id, session_token(call.request))

    async def end_session(self, call: Call[None]) -> Deleted:
        session_id = call.path_id(SessionNotFound())
        await self._sessions.end(session_id, call.user)
        return Deleted(id=session_id)

    async def end_other_sessions(self, call: Call[None]) -> EndedSessions:
        ended = await self._sessions.end_all(call.user.id, call.user, except_token=session_token(call.request))
        return EndedSessions(ended=ended)

    async def list_sessions_of_user(self, call: Call[None]) -> list[SessionOutput]:
        account = await self._accounts.get(call.path_id(UserNotFound()))
        return await self._sessions.list_active(account.id, session_token(call.request))

    async def end_sessions_of_user(self, call: Call[None]) -> EndedSessions:
        return EndedSessions(ended=await self._sessions.end_all(call.path_id(UserNotFound()), call.actor))
