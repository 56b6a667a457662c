"""The model's sessions, API tokens, passwords and invitations."""

import hashlib
import uuid
from datetime import datetime, timedelta
from typing import Any

from shop_lab.world.employee_model.people import People
from shop_lab.world.employee_model.state import (
    ABSOLUTE,
    DAY,
    Actor,
    ApiToken,
    Link,
    Session,
    User,
    change,
    nfc,
    user_of,
)
from shop_lab.world.employee_model.values import Call, Derived, Refused, Reply, Reversed, is_id, moment, new_id

ADDRESS, USER_AGENT = "127.0.0.1", "model"
_MAX_TOKENS = 50


class Credentials(People):
    """Operations on what gives access to accounts."""

    sign_ins: dict[User, list[tuple[int, dict[str, Any]]]]

    def login(self, call: Call, actor: Actor | None) -> Reply:
        key = nfc(nfc(call.body["email"].strip()).casefold())
        user = next((user for user in self.users if user.key == key), None)
        correct = user is not None and user.password == nfc(call.body["password"])
        if user is None or not correct or user.deactivated_at is not None:
            self._record_sign_in(user, "deactivated" if correct else "wrong_password")
            raise Refused(401, "Invalid email or password")
        if self.mode == "off":
            return Reply(200, user.public())
        self._record_sign_in(user, "success")
        self.sessions = [session for session in self.sessions if session.is_active(self.now)]
        created_at, seen_at, expires_at = moment(self.now), moment(self.now), moment(self.now + ABSOLUTE)
        session = Session(user, self.now, self.now, created_at, seen_at, expires_at)
        self.sessions.append(session)
        return Reply(200, user.public(), session=session.token)

    def _record_sign_in(self, user: User | None, outcome: str) -> None:
        if user is not None and self.mode != "off":
            row = {"id": new_id(), "outcome": outcome, "address": ADDRESS, "user_agent": USER_AGENT}
            self.sign_ins.setdefault(user, []).append((self.step, row | {"created_at": moment(self.now)}))

    def logout(self, call: Call, actor: Actor | None) -> Reply:
        if self.mode != "off":
            self.sessions = [session for session in self.sessions if session.token.value != call.token]
        return Reply(200, {"success": True})

    def list_own_sign_ins(self, call: Call, actor: Actor) -> Reply:
        return self._sign_ins(actor.user, call)

    def list_sign_ins(self, call: Call, actor: Actor | None) -> Reply:
        return self._sign_ins(self.existing_user(call.args[0]), call)

    def _sign_ins(self, user: User, call: Call) -> Reply:
        rows = [(Reversed(step), row) for step, row in self.sign_ins.get(user, [])]
        return Reply(200, self.page(f"sign_ins {user.id.value}", call.query, "created_at desc", rows))

    def change_own_password(self, call: Call, actor: Actor) -> Reply:
        user = actor.user
        if nfc(call.body["current_password"]) != user.password:
            self._record_sign_in(user, "wrong_password")
            raise Refused(403, "Current password is wrong")
        self.require_strong(call.body["new_password"])
        user.password = nfc(call.body["new_password"])
        self.sessions = [each for each in self.sessions if each.user is not user or each.token.value == call.token]
        self._delete_resets(user)
        self.record(user, "changed_password", ("user", user.id, user.name, {}))
        return Reply(200, {"success": True})

    def allow_password_reset(self, call: Call, actor: Actor | None) -> Reply:
        user = self.existing_user(call.args[0])
        self._delete_resets(user)
        link = self._add_link("password_reset", actor, DAY, user=user)
        self.record(user_of(actor), "allowed_password_reset", ("user", user.id, user.name, {}))
        return Reply(200, {"user_id": user.id, "token": link.token, "expires_at": link.expires_at})

    def reset_password(self, call: Call, actor: Actor | None) -> Reply:
        link = self.usable_link("password_reset", call.body["token"])
        if link is None:
            raise Refused(403, "Password reset is invalid or used")
        self.require_strong(call.body["password"])
        self.require_manager(link, "Password reset is invalid or used")
        assert link.user is not None
        link.user.password = nfc(call.body["password"])
        self.end_access(link.user)
        self._delete_resets(link.user)
        self.record(None, "reset_password", ("user", link.user.id, link.user.name, {}))
        return Reply(200, {"success": True})

    def _delete_resets(self, user: User) -> None:
        self.links = [link for link in self.links if link.user is not user]

    def _add_link(self, purpose: str, actor: Actor | None, lifetime: timedelta, **more: Any) -> Link:
        self.links = [link for link in self.links if link.expires > self.now]
        expires = self.now + lifetime
        self.links.append(Link(purpose, user_of(actor), expires, moment(self.now), moment(expires), **more))
        return self.links[-1]

    def create_invitation(self, call: Call, actor: Actor | None) -> Reply:
        self.require_open_registration()
        role, dept = call.body["role"], call.body.get("dept", "")
        lifetime = timedelta(days=call.body.get("expires_in_days", 7))
        link = self._add_link("invitation", actor, lifetime, role=role, dept=dept)
        changes = {"role": change(None, role), "dept": change(None, dept)}
        self.record(user_of(actor), "created", ("invitation", link.id, role, changes))
        return Reply(201, _invitation(link) | {"token": link.token})

    def list_invitations(self, call: Call, actor: Actor | None) -> Reply:
        found = [link for link in self.links if link.purpose == "invitation" and link.expires > self.now]
        return Reply(200, [_invitation(link) for link in reversed(found)])

    def delete_invitation(self, call: Call, actor: Actor | None) -> Reply:
        unused = (each for each in self.links if each.purpose == "invitation" and each.used_at is None)
        link = next((each for each in unused if each.id.value == call.args[0]), None)
        if link is None:
            raise Refused(404, "Invitation not found")
        self.links.remove(link)
        changes = {"role": change(link.role, None), "dept": change(link.dept, None)}
        self.record(user_of(actor), "deleted", ("invitation", link.id, link.role, changes))
        return Reply(200, {"success": True, "id": link.id})

    def list_sessions(self, call: Call, actor: Actor) -> Reply:
        return self._sessions(actor.user, call)

    def list_sessions_of_user(self, call: Call, actor: Actor | None) -> Reply:
        return self._sessions(self.existing_user(call.args[0]), call)

    def _sessions(self, user: User, call: Call) -> Reply:
        own = [each for each in self.sessions if each.user is user and each.is_active(self.now)]
        return Reply(200, [_session(each, call.token) for each in reversed(own)])

    def end_session(self, call: Call, actor: Actor) -> Reply:
        own = [each for each in self.sessions if each.user is actor.user]
        session = next((each for each in own if session_id(each.token.value) == call.args[0]), None)
        if session is None:
            raise Refused(404, "Session not found")
        self.sessions.remove(session)
        changes = {"session_id": change(call.args[0], None)}
        self.record(actor.user, "ended_session", ("user", actor.user.id, actor.user.name, changes))
        return Reply(200, {"success": True, "id": call.args[0]})

    def end_other_sessions(self, call: Call, actor: Actor) -> Reply:
        return self._end_sessions(actor.user, actor, call.token)

    def end_sessions_of_user(self, call: Call, actor: Actor | None) -> Reply:
        return self._end_sessions(self.existing_user(call.args[0]), actor, None)

    def _end_sessions(self, user: User, actor: Actor | None, besides: str | None) -> Reply:
        ended = [each for each in self.sessions if each.user is user and each.token.value != besides]
        self.sessions = [each for each in self.sessions if each not in ended]
        if ended:
            changes = {"sessions": change(len(ended), 0)}
            self.record(user_of(actor), "ended_sessions", ("user", user.id, user.name, changes))
        return Reply(200, {"success": True, "ended": len(ended)})

    def list_tokens(self, call: Call, actor: Actor) -> Reply:
        return self._tokens(actor.user)

    def list_tokens_of_user(self, call: Call, actor: Actor | None) -> Reply:
        return self._tokens(self.existing_user(call.args[0]))

    def _tokens(self, user: User) -> Reply:
        return Reply(200, [_token(each) for each in reversed(self.tokens) if each.user is user])

    def create_token(self, call: Call, actor: Actor) -> Reply:
        user, new = actor.user, call.body
        expires = datetime.fromisoformat(new["expires_at"]) if new.get("expires_at") else None
        if expires is not None and expires <= self.now:
            raise Refused(400, "expires_at must be in the future")
        self.tokens = [t for t in self.tokens if t.user is not user or t.expires is None or t.expires > self.now]
        if sum(each.user is user for each in self.tokens) >= _MAX_TOKENS:
            raise Refused(409, "Too many API tokens: revoke one first")
        token = ApiToken(user, new["name"], sorted(set(new["scopes"])), expires, moment(self.now))
        self.tokens.append(token)
        changes = {"token_id": token.id, "name": token.name, "scopes": " ".join(token.scopes)}
        created = {name: change(None, value) for name, value in changes.items()}
        self.record(user, "created_token", ("user", user.id, user.name, created))
        return Reply(201, _token(token) | {"token": token.token}, location=("/api/auth/tokens/", token.id))

    def revoke_token(self, call: Call, actor: Actor) -> Reply:
        return self._revoke(actor.user, call.args[0], actor)

    def revoke_token_of_user(self, call: Call, actor: Actor | None) -> Reply:
        if is_id(call.args[0]) and not is_id(call.args[1]):
            raise Refused(404, "API token not found")
        return self._revoke(self.existing_user(call.args[0]), call.args[1], actor)

    def _revoke(self, user: User, token_id: str, actor: Actor | None) -> Reply:
        token = next((each for each in self.tokens if each.user is user and each.id.value == token_id), None)
        if token is None:
            raise Refused(404, "API token not found")
        self.tokens.remove(token)
        changes = {"token_id": change(token.id, None), "name": change(token.name, None)}
        self.record(user_of(actor), "revoked_token", ("user", user.id, user.name, changes))
        return Reply(200, {"success": True, "id": token.id})


def session_id(token: str) -> str:
    return str(uuid.UUID(bytes=hashlib.sha256(token.encode()).digest()[:16]))


def _session(session: Session, current: str | None) -> dict[str, Any]:
    times = {"created_at": session.created_at, "last_seen_at": session.last_seen_at, "expires_at": session.expires_at}
    client = {"address": ADDRESS, "user_agent": USER_AGENT, "current": session.token.value == current}
    return {"id": Derived(session.token, session_id)} | times | client


def _token(token: ApiToken) -> dict[str, Any]:
    fields = {"id": token.id, "name": token.name, "scopes": token.scopes, "created_at": token.created_at}
    expires = token.expires and token.expires.strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    return fields | {"last_used_at": token.last_used_at, "expires_at": expires}


def _invitation(link: Link) -> dict[str, Any]:
    creator = link.creator.id if link.creator else None
    fields = {"id": link.id, "role": link.role, "dept": link.dept, "creator_id": creator}
    return fields | {"created_at": link.created_at, "expires_at": link.expires_at, "used_at": link.used_at}
