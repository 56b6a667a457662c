"""Sends random requests to the twins and to the model, and compares."""

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

import hypothesis.strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from shop_lab.world.employee_model.credentials import USER_AGENT
from shop_lab.world.employee_model.model import OPERATIONS, Model
from shop_lab.world.employee_model.people import canonical
from shop_lab.world.employee_model.state import User
from shop_lab.world.employee_model.twins import Twins
from shop_lab.world.employee_model.values import Call, Chosen, Reply, check

_MAX_PAGES = 5
_PROBLEM = "application/problem+json"
NOWHERE = "00000000-0000-4000-8000-000000000000"
PASSWORDS = (
    "correct horse battery",
    "nine brown otters",
    "cafe\u0301 au lait please",
    "caf\u00e9 au lait please",
    "pw",
)
EMAILS = (
    "ada@x",
    "ADA@X ",
    "bob@x",
    "e\u0301va@x",
    "\u00c9va@x",
    "Zoe@x",
    "Stra\u00dfe@x",
    "STRASSE@x",
    "kim@x",
    "li@x",
)
ROLES = ("ceo", "manager", "cto", "employee", "qa", "")
MODES: dict[str, dict[str, Any]] = {
    "off": {},
    "observe": {"auth_mode": "observe"},
    "enforce": {"auth_mode": "enforce"},
    "enforce, by invitation": {"auth_mode": "enforce", "registration": "invite"},
    "enforce, open": {"auth_mode": "enforce", "registration": "open"},
}

numbers = st.integers(0, 99)
# Mostly a session of a management user: see `Machine.token`.
callers = st.tuples(st.sampled_from([*range(5), *["manager"] * 8]), numbers)
keys = st.sampled_from([None, None, None, "k1", "k2"])
matches = st.sampled_from([None, None, None, "current", "current", "other", "*"])
emails, passwords, roles = st.sampled_from(EMAILS), st.sampled_from(PASSWORDS), st.sampled_from(ROLES)
names = st.sampled_from(["Ada Lovelace", "Grace  Hopper", "\u00e9mile zola x", "x"])
depts = st.sampled_from(["", "R&D", "Büro 7"])


class Machine(RuleBasedStateMachine):
    """Requests that both the twins and the model process. Subclasses set `twins` and have the rules."""

    twins: Twins
    requests = 0

    def __init__(self) -> None:
        super().__init__()
        self.twins.empty()
        self.model = Model()
        self.mode = "off"
        self.known_tokens: list[str] = []
        self.invites: list[str] = []
        self.resets: list[str] = []

    @initialize(mode=st.sampled_from(["off", "observe", *list(MODES)[2:] * 3]))
    def begin(self, mode: str) -> None:
        for number, role in enumerate(("ceo", "manager", "employee")):
            user = {"name": role, "email": EMAILS[number * 2], "password": PASSWORDS[0], "role": role}
            self.send("add_user", Call(body=user))
        for title in ("Water plants", "\u00c9clair", "100% _done_ /"):
            self.send("add_task", Call(body={"title": title, "assignee_id": self.user_id(0)}))
            self.send(
                "add_task", Call(body={"title": title.upper(), "description": "\u03c3\u03b1\u03c2", "priority": "low"})
            )
            self.send("add_comment", Call(args=(self.some_id(self.model.tasks, 0),), body={"body": title}))
        self.restart(mode)

    @rule(mode=st.sampled_from(list(MODES)))
    def restart(self, mode: str) -> None:
        """Restart the API with other settings."""
        self.mode, settings = mode, MODES[mode]
        self.model.mode = settings.get("auth_mode", "off")
        self.model.registration = settings.get("registration")

    @rule(
        passed=st.sampled_from([timedelta(minutes=30), timedelta(hours=5, minutes=17), timedelta(hours=26, minutes=7)])
    )
    def pass_time(self, passed: timedelta) -> None:
        self.model.now += passed

    def send(self, name: str, call: Call) -> Reply:
        """Send a request, and compare the responses with that of the model."""
        model, operation = self.model, OPERATIONS[name]
        type(self).requests += 1
        model.step += 1
        model.now += timedelta(seconds=1)
        reply = model.perform(name, call)
        headers = {"user-agent": USER_AGENT} | _headers(call)
        if model.step % 5 == 0:
            headers["accept"] = _PROBLEM
        query = {key: getattr(value, "token", value) for key, value in call.query.items()}
        query = {key: value.value if isinstance(value, Chosen) else value for key, value in query.items()}
        path = operation.path.format(*call.args)
        body = {} if call.body is None else {"json": call.body}
        response = self.twins.send(
            self.mode, model.step, model.now, operation.method, path, headers=headers, params=query, **body
        )
        assert response.status_code == reply.status, f"{response.status_code}, not {reply.status}: {response.text}"
        exported = response.headers.get("content-type", "").startswith("text/csv")
        if reply.status != 304:
            received = _rows(response.text, reply.body) if exported else response.json()
            if response.headers["content-type"] == _PROBLEM:
                assert (headers["accept"], received["status"]) == (_PROBLEM, reply.status)
                received = {"error": received["detail"]}
            check(reply.body, received)
        self._check_headers(reply, response.headers)
        if reply.remember is not None:
            identity, fingerprint, at = reply.remember
            model.stored[identity] = (
                fingerprint,
                at,
                Reply(reply.status, response.json(), reply.tagged, reply.location),
            )
        return reply

    def walk(self, name: str, call: Call) -> None:
        """Read some pages of a list."""
        for _ in range(_MAX_PAGES):
            reply = self.send(name, call)
            if reply.status != 200 or reply.body["next"] is None:
                return
            call = replace(call, query=call.query | {"cursor": self.model.cursors[-1][2]})

    def _check_headers(self, reply: Reply, headers: Mapping[str, str]) -> None:
        if reply.location:
            parts = [part.value if isinstance(part, Chosen) else part for part in reply.location]
            assert headers["location"] == "".join(parts)
        assert headers.get("idempotency-replayed") == ("true" if reply.replayed else None)
        assert ("etag" in headers) == reply.tagged
        if reply.tagged and reply.status != 304:
            tag = self.model.tags.setdefault(canonical(reply.body), headers["etag"])
            assert headers["etag"] == tag
            assert list(self.model.tags.values()).count(tag) == 1
        if reply.session is not None:
            reply.session.bind(headers["set-cookie"].partition("__Host-session=")[2].partition(";")[0])
            self.known_tokens.append(reply.session.value)

    def token(self, caller: tuple[int | str, int]) -> str | None:
        """Return the token of a caller: of a management user, who logs in if necessary, or some other."""
        kind, number = caller
        if kind == 0 or self.model.mode == "off":
            return None
        if kind == 1:
            return ("garbage", "shop_garbage")[number % 2]
        if kind != "manager" and self.known_tokens:
            return self.known_tokens[number % len(self.known_tokens)]
        for session in reversed(self.model.sessions):
            if session.user.manages and session.is_active(self.model.now):
                return str(session.token.value)
        managers = [user for user in self.model.users if user.manages]
        if not managers:
            return None
        user = managers[number % len(managers)]
        self.send("login", Call(body={"email": user.email, "password": user.password}))
        return str(self.known_tokens[-1])

    def user_id(self, number: int, *, unknown: bool = True) -> str:
        """Return the id of a user, or sometimes that of no one."""
        return self.some_id(self.model.users, number, unknown=unknown)

    def some_id(self, entities: Sequence[Any], number: int, *, unknown: bool = True) -> str:
        if not entities or (unknown and number > 94):
            return NOWHERE if number % 2 else "nonsense"
        return str(entities[number % len(entities)].id.value)

    def some_user(self, number: int) -> User | None:
        return self.model.users[number % len(self.model.users)] if self.model.users else None

    def matched(self, match: str | None, number: int, current: Any) -> str | None:
        """Return an entity tag: of this representation, if it is known, or some other."""
        if match == "current" and current is not None:
            return self.model.tags.get(canonical(current), '"unknown"')
        tags = list(self.model.tags.values())
        return tags[-1 - number % len(tags)] if match == "other" and tags else match and "*"

    def cursor(self, kind: str, number: int) -> dict[str, Any]:
        """Return a query that continues an earlier one, or that has its cursor but not its order."""
        earlier = [(query, cursor) for found, query, cursor in self.model.cursors if found == kind]
        if not earlier or number % 3 == 0:
            return {}
        query, cursor = earlier[-1 - number % len(earlier)]
        if number == 98 and kind == "tasks":
            query = {"sort": "title"}
        return query | {"cursor": cursor}


def _headers(call: Call) -> dict[str, str]:
    bearer = None if call.token is None else f"Bearer {call.token}"
    headers = {"authorization": bearer, "idempotency-key": call.key}
    headers |= {"if-match": call.if_match, "if-none-match": call.if_none_match}
    return {name: value for name, value in headers.items() if value is not None}


def _rows(text: str, expected: Any) -> Any:
    rows = list(csv.DictReader(io.StringIO(text, newline="")))
    return rows if isinstance(expected, list) else text
