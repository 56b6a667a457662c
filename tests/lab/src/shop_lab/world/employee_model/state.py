"""What the model remembers, and what all of its operations share: authorization, repetitions, activities, pages."""

import json
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from shop_lab.world.employee_model.values import Call, Chosen, Refused, Reply, moment, new_id, new_text

IDLE, ABSOLUTE, DAY = timedelta(hours=8), timedelta(days=7), timedelta(days=1)
MANAGEMENT = {"ceo", "cto", "manager"}
MIN_PASSWORD_LENGTH = 12


@dataclass(eq=False)
class User:
    name: str
    email: str
    password: str
    role: str
    dept: str
    color: Chosen
    created_at: Chosen
    created: int
    at: datetime
    approved: bool = True
    deactivated_at: Chosen | None = None
    id: Chosen = field(default_factory=new_id)

    @property
    def manages(self) -> bool:
        return self.role in MANAGEMENT and self.approved and self.deactivated_at is None

    @property
    def key(self) -> str:
        return nfc(nfc(self.email.strip()).casefold())

    def public(self) -> dict[str, Any]:
        avatar = "".join(word[0] for word in self.name.split(" ") if word)[:2].upper()
        fields = {"id": self.id, "name": self.name, "role": self.role, "email": self.email}
        return fields | {"color": self.color, "avatar": avatar, "dept": self.dept}

    def account(self) -> dict[str, Any]:
        state = {"approved": self.approved, "deactivated_at": self.deactivated_at, "created_at": self.created_at}
        return self.public() | state


@dataclass(eq=False)
class Session:
    user: User
    begun: datetime
    seen: datetime
    created_at: Chosen
    last_seen_at: Chosen
    expires_at: Chosen
    token: Chosen = field(default_factory=new_text)

    def is_active(self, now: datetime) -> bool:
        return now < self.begun + ABSOLUTE and now < self.seen + IDLE


@dataclass(eq=False)
class ApiToken:
    user: User
    name: str
    scopes: list[str]
    expires: datetime | None
    created_at: Chosen
    used: datetime | None = None
    last_used_at: Chosen | None = None
    id: Chosen = field(default_factory=new_id)
    token: Chosen = field(default_factory=new_text)


@dataclass(eq=False)
class Link:
    purpose: str
    creator: User | None
    expires: datetime
    created_at: Chosen
    expires_at: Chosen
    user: User | None = None
    role: str = ""
    dept: str = ""
    used_at: Chosen | None = None
    id: Chosen = field(default_factory=new_id)
    token: Chosen = field(default_factory=new_text)


@dataclass
class Activity:
    """An activity; `position` is that of its request, and its own among those of the request."""

    position: tuple[int, int]
    actor: User | None
    action: str
    subject: tuple[str, Any, str]
    changes: dict[str, Any]
    at: datetime
    created_at: Chosen
    id: Chosen = field(default_factory=new_id)


@dataclass(frozen=True)
class Actor:
    user: User
    scopes: list[str] | None = None


@dataclass
class Cursor:
    """Where a page ends, in an order."""

    order: str
    position: Any
    token: Chosen = field(default_factory=new_text)


@dataclass
class State:
    mode: str = "off"
    registration: str | None = None
    step: int = 0
    now: datetime = datetime(2026, 1, 30, 12, tzinfo=UTC)
    users: list[User] = field(default_factory=list)
    sessions: list[Session] = field(default_factory=list)
    tokens: list[ApiToken] = field(default_factory=list)
    links: list[Link] = field(default_factory=list)
    activities: list[Activity] = field(default_factory=list)
    stored: dict[Any, Any] = field(default_factory=dict)
    cursors: list[tuple[str, dict[str, Any], Cursor]] = field(default_factory=list)

    @property
    def enforced(self) -> bool:
        return self.mode == "enforce"

    def user(self, user_id: str | None) -> User | None:
        return next((user for user in self.users if user.id.value == user_id), None)

    def refuse(self, status: int, text: str) -> None:
        if self.enforced:
            raise Refused(status, text)

    def find_actor(self, token: str | None) -> Actor | None:
        if self.mode == "off" or token is None:
            return None
        for session in self.sessions:
            active = session.is_active(self.now) and session.user.deactivated_at is None
            if session.token.value == token and active:
                if self.now - session.seen > IDLE / 20:
                    session.seen, session.last_seen_at = self.now, moment(self.now)
                return Actor(session.user)
        for api_token in self.tokens:
            active = api_token.user.deactivated_at is None and (not api_token.expires or api_token.expires > self.now)
            if api_token.token.value == token and active:
                if api_token.used is None or self.now - api_token.used > timedelta(minutes=1):
                    api_token.used, api_token.last_used_at = self.now, moment(self.now)
                return Actor(api_token.user, api_token.scopes)
        return None

    def authorize(self, token: str | None, access: str, scope: str) -> Actor | None:
        actor = self.find_actor(token)
        refusal = _refusal(actor, access, scope)
        if refusal is not None:
            self.refuse(*refusal)
            if access == "self":
                raise Refused(*refusal)
        return actor

    def record(self, actor: User | None, action: str, *subjects: tuple[str, Any, str, dict[str, Any]]) -> None:
        of_request = [activity for activity in self.activities if activity.position[0] == self.step]
        created_at = of_request[0].created_at if of_request else moment(self.now)
        for number, (kind, subject_id, name, changes) in enumerate(subjects, len(of_request)):
            subject = (kind, subject_id, name)
            position = (self.step, number)
            self.activities.append(Activity(position, actor, action, subject, changes, self.now, created_at))

    def page(self, kind: str, query: dict[str, Any], order: str, items: Sequence[tuple[Any, Any]]) -> dict[str, Any]:
        """Return the page of items, given with their positions, that the query requests."""
        cursor = query.get("cursor")
        if cursor is not None and cursor.order != order:
            raise Refused(400, "cursor is invalid")
        limit = int(query.get("limit", 50))
        following = sorted((item for item in items if cursor is None or cursor.position < item[0]), key=lambda i: i[0])
        if len(following) <= limit:
            return {"items": [item for _, item in following], "next": None}
        after = Cursor(order, following[limit - 1][0])
        self.cursors.append((kind, query, after))
        return {"items": [item for _, item in following[:limit]], "next": after.token}

    def replay(self, operation: str, actor: Actor | None, call: Call, known: Any) -> Reply | tuple[Any, ...]:
        """Return the reply to an earlier request with the same key, or where to store that to this one."""
        identity = (user_of(actor), operation, call.key)
        fingerprint = json.dumps([call.args, known], sort_keys=True)
        if identity in self.stored:
            earlier, at, reply = self.stored[identity]
            if self.now < at + DAY:
                if earlier != fingerprint:
                    raise Refused(422, "Idempotency-Key was already used for a different request")
                return Reply(reply.status, reply.body, reply.tagged, reply.location, replayed=True)
        return (identity, fingerprint, self.now)


def _refusal(actor: Actor | None, access: str, scope: str) -> tuple[int, str] | None:
    if access == "open":
        return None
    if actor is None:
        return 401, "Authentication required"
    if access == "self":
        return None if actor.scopes is None else (403, "Log in for this: API tokens can't do it")
    refusals = {
        f"The API token lacks the scope {scope}": actor.scopes is not None and scope not in actor.scopes,
        "Your account awaits approval": not actor.user.approved,
        "Not allowed": access == "management" and actor.user.role not in MANAGEMENT,
    }
    return next(((403, text) for text, applies in refusals.items() if applies), None)


def user_of(actor: Actor | None) -> User | None:
    return None if actor is None else actor.user


def change(before: Any, after: Any) -> dict[str, Any]:
    return {"before": before, "after": after}


def nfc(text: str) -> str:
    return unicodedata.normalize("NFC", text)
