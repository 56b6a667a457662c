"""The model's users: registration, administration, and their own accounts."""

import json
from typing import Any

from shop_lab.world.employee_model.state import MIN_PASSWORD_LENGTH, Actor, Link, State, User, change, nfc, user_of
from shop_lab.world.employee_model.values import Call, Refused, Reply, moment, new_color, recorded

RECORDED = ("name", "email", "role", "dept")


class People(State):
    """Operations on users."""

    tags: dict[str, str]

    def register(self, call: Call, actor: Actor | None) -> Reply:
        new, invite = call.body, call.body.get("invite") or None
        self.require_open_registration()
        link = None if invite is None else self.usable_link("invitation", invite)
        if invite is None and self.registration == "invite":
            raise Refused(403, "An invitation is required")
        if invite is not None and link is None:
            raise Refused(403, "Invitation is invalid or used")
        self.require_strong(new["password"])
        if link is None:
            more: dict[str, Any] = {"role": "employee", "approved": False} if self.enforced else {}
            return self._add(new, actor, **more)
        self.require_manager(link, "Invitation is invalid or used")
        return self._add(new, actor, link, role=link.role, dept=link.dept or new.get("dept") or "")

    def add_user(self, call: Call, actor: Actor | None) -> Reply:
        self.require_strong(call.body["password"])
        return self._add(call.body, actor)

    def _add(self, new: dict[str, Any], actor: Actor | None, link: Link | None = None, **more: Any) -> Reply:
        fields: dict[str, Any] = {"role": new.get("role") or "employee", "dept": new.get("dept") or ""} | more
        fields |= {"name": new["name"], "email": new["email"], "password": nfc(new["password"])}
        fields |= {"color": new_color(), "created_at": moment(self.now), "created": self.step, "at": self.now}
        user = User(**fields)
        self.require_free_email(user)
        changes = {name: change(None, getattr(user, name)) for name in RECORDED}
        if link is not None:
            link.used_at = moment(self.now)
            changes["invitation_id"] = change(None, link.id)
        self.users.append(user)
        self.record(user_of(actor), "created", ("user", user.id, user.name, changes))
        return Reply(201, user.public(), location=("/api/auth/users/", user.id))

    def list_users(self, call: Call, actor: Actor | None) -> Reply:
        return Reply(200, [user.public() for user in self.users])

    def delete_user(self, call: Call, actor: Actor | None) -> Reply:
        user = self.existing_user(call.args[0])
        if self.enforced:
            self._require_other_manager(user, "deleted")
        remaining = actor.user if actor and actor.user is not user else None
        self.detach(user, remaining)
        self.users.remove(user)
        self.end_access(user)
        self.links = [link for link in self.links if link.user is not user]
        for link in self.links:
            link.creator = None if link.creator is user else link.creator
        for activity in self.activities:
            activity.actor = None if activity.actor is user else activity.actor
        deleted = {name: change(getattr(user, name), None) for name in RECORDED}
        self.record(remaining, "deleted", ("user", user.id, user.name, deleted))
        return Reply(200, {"success": True, "id": user.id})

    def detach(self, user: User, actor: User | None) -> None:
        """Remove a user from all tasks and comments."""
        raise NotImplementedError

    def get_me(self, call: Call, actor: Actor) -> Reply:
        return self.revalidated(call, Reply(200, actor.user.account(), tagged=True))

    def change_me(self, call: Call, actor: Actor) -> Reply:
        return self._change(actor.user, call, actor)

    def get_user(self, call: Call, actor: Actor | None) -> Reply:
        return self.revalidated(call, Reply(200, self.existing_user(call.args[0]).account(), tagged=True))

    def change_user(self, call: Call, actor: Actor | None) -> Reply:
        return self._change(self.existing_user(call.args[0]), call, actor)

    def _change(self, user: User, call: Call, actor: Actor | None) -> Reply:
        requested = dict(call.body)
        if "role" in requested:
            requested["approved"] = True
            if requested["role"] not in {"ceo", "cto", "manager"}:
                self._require_other_manager(user, "given another role")
        self.require_match(call, user.account())
        changed = {name: value for name, value in requested.items() if value != getattr(user, name)}
        if "email" in changed:
            self.require_free_email(User(**(vars(user) | changed)), besides=user)
        changes = {name: change(getattr(user, name), value) for name, value in changed.items()}
        for name, value in changed.items():
            setattr(user, name, value)
        if changed:
            self.record(user_of(actor), "updated", ("user", user.id, user.name, changes))
        return Reply(200, user.account(), tagged=True)

    def deactivate_user(self, call: Call, actor: Actor | None) -> Reply:
        user = self.existing_user(call.args[0])
        self._require_other_manager(user, "deactivated")
        if user.deactivated_at is None:
            self._set_deactivated(user, actor, "deactivated", moment(self.now))
        return Reply(200, user.account(), tagged=True)

    def reactivate_user(self, call: Call, actor: Actor | None) -> Reply:
        user = self.existing_user(call.args[0])
        if user.deactivated_at is not None:
            self._set_deactivated(user, actor, "reactivated", None)
        return Reply(200, user.account(), tagged=True)

    def _set_deactivated(self, user: User, actor: Actor | None, action: str, at: Any) -> None:
        self.end_access(user)
        changes = {"deactivated_at": change(recorded(user.deactivated_at), recorded(at))}
        user.deactivated_at = at
        self.record(user_of(actor), action, ("user", user.id, user.name, changes))

    def end_access(self, user: User) -> None:
        self.sessions = [session for session in self.sessions if session.user is not user]
        self.tokens = [token for token in self.tokens if token.user is not user]

    def existing_user(self, user_id: str) -> User:
        user = self.user(user_id)
        if user is None:
            raise Refused(404, "User not found")
        return user

    def require_free_email(self, new: User, besides: User | None = None) -> None:
        if any(user.key == new.key for user in self.users if user is not besides):
            raise Refused(409, "Email already registered")

    def require_strong(self, password: str) -> None:
        if self.mode != "off" and len(nfc(password)) < MIN_PASSWORD_LENGTH:
            raise Refused(400, f"Password must have at least {MIN_PASSWORD_LENGTH} characters")

    def require_open_registration(self) -> None:
        if self.registration == "closed":
            raise Refused(403, "Registration is closed")
        if self.registration is None and any(user.manages for user in self.users):
            self.refuse(403, "Registration is closed")

    def require_manager(self, link: Link, text: str) -> None:
        if self.enforced and not (link.creator and link.creator.manages):
            raise Refused(403, text)

    def usable_link(self, purpose: str, token: str) -> Link | None:
        usable = (link for link in self.links if link.used_at is None and link.expires > self.now)
        return next((link for link in usable if (link.purpose, link.token.value) == (purpose, token)), None)

    def _require_other_manager(self, user: User, change_to: str) -> None:
        if [each for each in self.users if each.manages] == [user]:
            raise Refused(409, f"The last leader can't be {change_to}")

    def revalidated(self, call: Call, reply: Reply) -> Reply:
        """Return 304 if the client has the current representation."""
        tag = self.tags.get(canonical(reply.body))
        return Reply(304, None, tagged=True) if tag is not None and call.if_none_match == tag else reply

    def require_match(self, call: Call, current: Any) -> None:
        if call.if_match not in (None, "*") and call.if_match != self.tags.get(canonical(current)):
            raise Refused(412, "Changed since it was read")


def canonical(body: Any) -> str:
    """Return what identifies a representation whose values are known."""
    return json.dumps(body, sort_keys=True, default=lambda chosen: chosen.value)
