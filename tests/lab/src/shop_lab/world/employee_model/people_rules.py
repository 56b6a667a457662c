"""Random requests about users and their credentials."""

from datetime import timedelta
from typing import Any

import hypothesis.strategies as st
from hypothesis.stateful import rule

from shop_lab.world.employee_model.credentials import session_id
from shop_lab.world.employee_model.machine import (
    MODES,
    NOWHERE,
    Machine,
    callers,
    depts,
    emails,
    keys,
    matches,
    names,
    numbers,
    passwords,
    roles,
)
from shop_lab.world.employee_model.values import Call

Caller = tuple[int | str, int]
PASSWORD_OF_NO_ONE = "not the password"
_SCOPES = ("users:read", "users:write", "tasks:read", "tasks:write", "activities:read", "export:read")
new_users = st.fixed_dictionaries(
    {"name": names, "email": emails, "password": passwords}, optional={"role": roles, "dept": depts | st.none()}
)
account_patches = st.fixed_dictionaries(
    {}, optional={"name": names, "email": emails, "role": st.sampled_from(["ceo", "manager", "qa"]), "dept": depts}
)
token_scopes = st.lists(st.sampled_from(_SCOPES), min_size=1, max_size=6)


class PeopleRules(Machine):
    """Requests about users."""

    @rule(caller=callers, new=new_users, key=keys, number=numbers)
    def register(self, caller: Caller, new: dict[str, Any], key: str | None, number: int) -> None:
        if number % 4 and self.invites:
            new = new | {"invite": self.invites[-1 - number % len(self.invites)]}
        self.send("register", Call(self.token(caller), body=new, key=key))

    @rule(caller=callers, new=new_users, key=keys)
    def add_user(self, caller: Caller, new: dict[str, Any], key: str | None) -> None:
        self.send("add_user", Call(self.token(caller), body=new, key=key))

    @rule(caller=callers, number=numbers, name=st.sampled_from(["delete_user", "deactivate_user", "deactivate_user"]))
    def remove_user(self, caller: Caller, number: int, name: str) -> None:
        self.send(name, Call(self.token(caller), (self.user_id(number),)))

    @rule(caller=callers, number=numbers)
    def reactivate_user(self, caller: Caller, number: int) -> None:
        deactivated = [user for user in self.model.users if user.deactivated_at is not None]
        self.send("reactivate_user", Call(self.token(caller), (self.some_id(deactivated or self.model.users, number),)))

    @rule(caller=callers, number=numbers, match=matches)
    def get_user(self, caller: Caller, number: int, match: str | None) -> None:
        user = self.some_user(number)
        tag = self.matched(match if match != "*" else None, number, user and user.account())
        self.send("get_user", Call(self.token(caller), (self.user_id(number),), if_none_match=tag))

    @rule(caller=callers, number=numbers, match=matches, patch=account_patches)
    def change_user(self, caller: Caller, number: int, match: str | None, patch: dict[str, Any]) -> None:
        user = self.some_user(number)
        tag = self.matched(match, number, user and user.account())
        self.send("change_user", Call(self.token(caller), (self.user_id(number),), body=patch, if_match=tag))

    @rule(caller=callers, number=numbers, match=matches, name=st.none() | names)
    def own_account(self, caller: Caller, number: int, match: str | None, name: str | None) -> None:
        token = self.token(caller)
        if name is None:
            self.send("get_me", Call(token))
        else:
            self.send("change_me", Call(token, body={"name": name}, if_match=self.matched(match, number, None)))

    @rule(caller=callers, name=st.sampled_from(["list_users", "list_invitations", "list_sessions", "list_tokens"]))
    def list_all(self, caller: Caller, name: str) -> None:
        self.send(name, Call(self.token(caller)))

    @rule(
        caller=callers,
        number=numbers,
        name=st.sampled_from(["list_sessions_of_user", "list_tokens_of_user", "list_sign_ins", "end_sessions_of_user"]),
    )
    def of_user(self, caller: Caller, number: int, name: str) -> None:
        query = (
            self.cursor(f"sign_ins {self.user_id(number)}", number) | {"limit": "2"} if name == "list_sign_ins" else {}
        )
        self.send(name, Call(self.token(caller), (self.user_id(number),), query=query))

    @rule(caller=callers, limit=st.sampled_from(["1", "50"]))
    def list_own_sign_ins(self, caller: Caller, limit: str) -> None:
        self.walk("list_own_sign_ins", Call(self.token(caller), query={"limit": limit}))


class CredentialRules(Machine):
    """Requests about sessions, tokens, passwords and invitations."""

    @rule(number=numbers, password=passwords)
    def login(self, number: int, password: str) -> None:
        user = self.some_user(number)
        email = user.email if user else "no@one"
        self.send("login", Call(body={"email": email, "password": user.password if user and number % 4 else password}))

    @rule(caller=callers)
    def logout(self, caller: Caller) -> None:
        self.send("logout", Call(self.token(caller)))

    @rule(caller=callers, number=numbers)
    def end_session(self, caller: Caller, number: int) -> None:
        token = self.token(caller)
        if number % 4 == 0:
            self.send("end_other_sessions", Call(token))
        else:
            known = (
                session_id(self.known_tokens[-1 - number % len(self.known_tokens)]) if self.known_tokens else NOWHERE
            )
            self.send("end_session", Call(token, (known,)))

    @rule(caller=callers, name=names, scopes=token_scopes, days=st.sampled_from([None, None, 1, 30, -1]))
    def create_token(self, caller: Caller, name: str, scopes: list[str], days: int | None) -> None:
        token = self.token(caller)
        expires = days and (self.model.now + timedelta(days=days)).isoformat()
        reply = self.send("create_token", Call(token, body={"name": name, "scopes": scopes, "expires_at": expires}))
        if reply.status == 201:
            self.known_tokens += [reply.body["token"].value] * 3

    @rule(caller=callers, number=numbers)
    def revoke_token(self, caller: Caller, number: int) -> None:
        token_id = self.some_id(self.model.tokens, number)
        owner = self.model.tokens[number % len(self.model.tokens)].user.id.value if self.model.tokens else NOWHERE
        if number % 2:
            self.send("revoke_token", Call(self.token(caller), (token_id,)))
        else:
            self.send("revoke_token_of_user", Call(self.token(caller), (owner, token_id)))

    @rule(caller=callers, number=numbers, new=passwords)
    def change_own_password(self, caller: Caller, number: int, new: str) -> None:
        token = self.token(caller)
        owner = next((session.user for session in self.model.sessions if session.token.value == token), None)
        current = owner.password if owner and number % 4 else PASSWORD_OF_NO_ONE
        self.send("change_own_password", Call(token, body={"current_password": current, "new_password": new}))

    @rule(caller=callers, number=numbers)
    def allow_password_reset(self, caller: Caller, number: int) -> None:
        reply = self.send("allow_password_reset", Call(self.token(caller), (self.user_id(number),)))
        if reply.status == 200:
            self.resets.append(reply.body["token"].value)

    @rule(number=numbers, new=passwords)
    def reset_password(self, number: int, new: str) -> None:
        token = self.resets[-1 - number % min(2, len(self.resets))] if self.resets else "none"
        self.send("reset_password", Call(body={"token": token, "password": new}))

    @rule(caller=callers, role=roles.filter(bool), dept=depts, days=st.sampled_from([1, 7, 30]))
    def create_invitation(self, caller: Caller, role: str, dept: str, days: int) -> None:
        new = {"role": role, "dept": dept, "expires_in_days": days}
        reply = self.send("create_invitation", Call(self.token(caller), body=new))
        if reply.status == 201:
            self.invites.append(reply.body["token"].value)

    @rule(new=new_users, role=roles.filter(bool), mode=st.none() | st.sampled_from(list(MODES)))
    def accept_invitation(self, new: dict[str, Any], role: str, mode: str | None) -> None:
        """Invite someone, and let them register, perhaps after a restart with other settings."""
        reply = self.send("create_invitation", Call(self.token(("manager", 0)), body={"role": role}))
        if mode is not None:
            self.restart(mode)
        if reply.status == 201:
            self.send("register", Call(body=new | {"invite": reply.body["token"].value}))

    @rule(number=numbers, mode=st.none() | st.sampled_from(list(MODES)), new=passwords)
    def recover_account(self, number: int, mode: str | None, new: str) -> None:
        """Let a user, who mostly has an API token, set their password, perhaps after a restart with other settings."""
        owners = [token.user for token in self.model.tokens] or self.model.users
        args = (self.some_id(owners, number),)
        reply = self.send("allow_password_reset", Call(self.token(("manager", 0)), args))
        if mode is not None:
            self.restart(mode)
        if reply.status == 200:
            self.send("reset_password", Call(body={"token": reply.body["token"].value, "password": new}))
        self.send("list_tokens_of_user", Call(self.token(("manager", 0)), args))

    @rule(caller=callers, number=numbers)
    def delete_invitation(self, caller: Caller, number: int) -> None:
        self.send("delete_invitation", Call(self.token(caller), (self.some_id(self.model.links, number),)))
