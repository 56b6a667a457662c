"""Random requests to the API on SQLite and on PostgreSQL, which must send the same bytes.

Everything random is drawn from a seed that depends only on the number of the request: ids, tokens, colors. So responses
contain no differences to allow for, not even in cursors and entity tags.
"""

import base64
import csv
import io
import random
import re
import secrets
import uuid
from collections import Counter, defaultdict
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import httpx2
import pytest

from employee_api.access import SESSION_COOKIE
from shop_kit.employee_api import UNKNOWN_ID, Api, Clock, api_starter

COMPARED_HEADERS = ("content-type", "etag", "location", "set-cookie", "idempotency-replayed", "www-authenticate")
ID = re.compile("[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
MAX_ID = 2**128 - 1
IDS_PER_REQUEST = 2**20
# The limits have tests of their own.
LIMITS = ("failed_logins_per_email", "failed_logins_per_address", "registrations_per_address")
UNLIMITED = dict.fromkeys(LIMITS, 10**6)
MODES: dict[str, dict[str, Any]] = {
    "off": {},
    "observe": {"auth_mode": "observe"},
    "enforce": {"auth_mode": "enforce"},
    "enforce, by invitation": {"auth_mode": "enforce", "registration": "invite"},
    "enforce, open": {"auth_mode": "enforce", "registration": "open"},
}
PASSWORD = "correct horse battery"
PASSWORDS = (PASSWORD, PASSWORD, "cafe\u0301 au lait please", "caf\u00e9 au lait please", "pw")
TITLES = (
    "Water plants",
    "water PLANTS",
    "\u00c9clair",
    "\u00e9clair",
    "100% _done_ /",
    "\u03a3\u0391\u03a3",
    "\u0130s",
)
EMAILS = ("ada@x", "ADA@X ", "e\u0301va@x", "\u00c9va@x", "Stra\u00dfe@x", "STRASSE@x", *(f"{n}@x" for n in range(60)))
DATES = (None, "2026-01-31", "2028-02-29", "0001-01-01", "9999-12-31")
# What the two databases could treat differently: letters of both cases, wildcards, extreme dates.
VALUES: dict[str, tuple[Any, ...]] = {
    "name": ("Ada Lovelace", "Grace  Hopper", "\u00e9mile zola x", "x"),
    "email": EMAILS,
    "password": PASSWORDS,
    "new_password": PASSWORDS,
    "current_password": PASSWORDS,
    "role": ("ceo", "manager", "employee", "qa"),
    "dept": ("", "R&D", "B\u00fcro 7"),
    "title": TITLES,
    "description": TITLES,
    "body": ("Done.", "\u2713 except for the cactus"),
    "q": ("water", "PLANTS water", "%", "_", "/", "\u00c9", "\u03c3\u03b1\u03c2", "i", "zz"),
    "month": ("2026-03", "2026-04", "2025-12"),
    "due_date": DATES,
    "due_before": DATES[1:],
    "limit": (1, 2, 3, 200),
    "tz": ("Europe/Berlin", "Asia/Kathmandu", "UTC"),
    "action": ("created", "updated", "deleted", "commented"),
    "expires_at": (None, "2026-04-01T00:00:00Z", "2020-01-01T00:00:00Z"),
}
POOLS = dict.fromkeys(("assignee", "reporter", "author", "actor"), "users") | {"subject": "tasks", "task": "tasks"}


class SeededRandomness(random.Random):
    """Replaces the sources of randomness. Ids fall, so that the newest row has the smallest one."""

    def __init__(self) -> None:
        super().__init__(0)
        self._next_id = MAX_ID

    def patch(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(uuid, "uuid4", self._uuid)
        monkeypatch.setattr(secrets, "token_urlsafe", self._token)
        monkeypatch.setattr(random, "SystemRandom", lambda: self)

    def restart(self, step: int) -> None:
        self.seed(step)
        self._next_id = MAX_ID - step * IDS_PER_REQUEST

    def _uuid(self) -> uuid.UUID:
        self._next_id -= 1
        return uuid.UUID(int=self._next_id)

    def _token(self, size: int) -> str:
        return base64.urlsafe_b64encode(self.randbytes(size)).rstrip(b"=").decode()


@dataclass
class RandomRequests:
    """Makes requests from an API description, with ids, tokens, tags and cursors of earlier responses."""

    document: dict[str, Any]
    choose: random.Random
    bearers: list[str] = field(default_factory=list)
    ids: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    parents: dict[str, list[str]] = field(default_factory=dict)
    tokens: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    tags: list[str] = field(default_factory=list)
    cursors: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))

    def __post_init__(self) -> None:
        paths = self.document["paths"]
        self.operations = [(path, method) for path in paths for method in paths[path] if path.startswith("/api/")]

    def next(self) -> tuple[str, str, str, dict[str, Any]]:
        """Return the name of an operation and a request to it: method, path, and the arguments of the client."""
        template, method = self.choose.choice(self.operations)
        operation = self.document["paths"][template][method]
        headers = {"user-agent": "twin"} | self._headers(operation)
        path, query = self._path(template), self._query(operation, template)
        body = {"json": self._value(self._schema(operation), template)} if "requestBody" in operation else {}
        return operation["operationId"], method.upper(), path, {"headers": headers, "params": query} | body

    def learn(self, path: str, response: httpx2.Response) -> None:
        """Keep what further requests can name."""
        if SESSION_COOKIE in response.cookies and (cookie := response.cookies[SESSION_COOKIE]):
            self.bearers.append(cookie)
        if "etag" in response.headers:
            self.tags.append(response.headers["etag"])
        if not response.is_success or response.headers["content-type"] != "application/json":
            return
        found = response.json()
        if isinstance(found, dict) and found.get("next"):
            self.cursors[path].append(found["next"])
        if isinstance(found, dict) and str(found.get("token")).startswith("shop_"):
            self.bearers.insert(-1, found["token"])  # the session stays the newest
        elif isinstance(found, dict) and "token" in found:
            self.tokens["invite" if "role" in found else "token"].append(found["token"])
        *_, resource = (part for part in path.split("/") if not ID.fullmatch(part))
        items = found.get("items", [found]) if isinstance(found, dict) else found
        for item in reversed(items):  # lists begin with the newest
            if "id" in item and "success" not in item and "action" not in item and "outcome" not in item:
                self.ids[resource].append(item["id"])
                self.parents[item["id"]] = [part for part in ID.findall(path) if part != item["id"]]

    def _path(self, template: str) -> str:
        segments = re.findall(r"(\w+)/\{", template)
        known = self.ids[segments[-1]][-12:] if segments else []
        ids = [UNKNOWN_ID] * len(segments)
        if known and self.choose.random() < 0.9:
            chosen = self.choose.choice(known)
            ids = [*ids, *self.parents[chosen], chosen][-len(segments) :]
        return re.sub(r"\{\w+\}", lambda _: ids.pop(0), template)

    def _headers(self, operation: dict[str, Any]) -> dict[str, str]:
        chosen = {}
        if self.bearers and self.choose.random() < 0.95:
            # Mostly the newest session or API token: others have ended.
            newest = self.bearers[-1:] if self.choose.random() < 0.7 else self.bearers
            chosen["authorization"] = f"Bearer {self.choose.choice(newest)}"
        if self.choose.random() < 0.2:
            chosen["accept"] = "application/problem+json"
        named = {parameter["name"].lower() for parameter in operation.get("parameters", [])}
        if "idempotency-key" in named and self.choose.random() < 0.3:
            chosen["idempotency-key"] = self.choose.choice(("k1", "k2", "k3"))
        for header in {"if-match", "if-none-match"} & named:
            if self.choose.random() < 0.3:
                chosen[header] = self.choose.choice(("*", *self.tags[-3:]))
        return chosen

    def _query(self, operation: dict[str, Any], path: str) -> dict[str, Any]:
        parameters = [found for found in operation.get("parameters", []) if found["in"] == "query"]
        query = {found["name"]: self._field(found["name"], found["schema"], path) for found in parameters}
        chosen = {name: value for name, value in query.items() if value is not None and self.choose.random() < 0.25}
        return chosen | ({"unknown": "1"} if self.choose.random() < 0.03 else {})

    def _schema(self, operation: dict[str, Any]) -> dict[str, Any]:
        reference: str = operation["requestBody"]["content"]["application/json"]["schema"]["$ref"]
        schema: dict[str, Any] = self.document["components"]["schemas"][reference.rpartition("/")[2]]
        return schema

    def _value(self, schema: dict[str, Any], path: str) -> dict[str, Any]:
        required = schema.get("required", [])
        names = [name for name in schema["properties"] if self.choose.random() < (0.97 if name in required else 0.5)]
        body = {name: self._field(name, schema["properties"][name], path) for name in names}
        return body | ({"unknown": 1} if self.choose.random() < 0.03 else {})

    def _field(self, name: str, schema: dict[str, Any], path: str) -> Any:
        if name == "cursor":
            return self.choose.choice(self.cursors[path][-3:] or [None])
        if name in ("token", "invite"):
            return self.choose.choice(self.tokens[name][-3:] or ["none"])
        if name in VALUES:
            return self.choose.choice(VALUES[name])
        pool = self.ids[POOLS.get(name.removesuffix("_id"), "")]
        if pool or name.endswith("_id"):
            return self.choose.choice([*pool[-12:], UNKNOWN_ID, None, None])
        return self._of_type(name, schema, path)

    def _of_type(self, name: str, schema: dict[str, Any], path: str) -> Any:
        if "$ref" in schema:
            schema = self.document["components"]["schemas"][schema["$ref"].rpartition("/")[2]]
        if "anyOf" in schema:  # a type or null
            return self._of_type(name, schema["anyOf"][0], path)
        if "enum" in schema:
            return self.choose.choice(schema["enum"])
        if schema["type"] == "array":
            return [
                self._field(name.removesuffix("s"), schema["items"], path) for _ in range(self.choose.randint(1, 3))
            ]
        return self.choose.random() < 0.5 if schema["type"] == "boolean" else self.choose.randint(1, 30)


@dataclass
class Twins:
    """APIs on two databases: one pair for each mode."""

    randomness: SeededRandomness
    clock: Clock
    apis: dict[str, tuple[Api, Api]]
    seed: int
    sent: int = 0

    async def send(self, mode: str, method: str, path: str, **request: Any) -> httpx2.Response:
        """Send a request to both, compare the responses, and return one of them."""
        self.sent += 1
        now = self.clock.now = self.clock.now + timedelta(seconds=1)
        responses = []
        for api in self.apis[mode]:
            self.randomness.restart(self.sent)
            self.clock.now = now
            responses.append(await api.client.request(method, path, **request))
            api.client.cookies.clear()
        sqlite, postgres = responses
        described = f"request {self.sent}, seed {self.seed}, mode {mode!r}: {method} {path} {request}"
        assert (sqlite.status_code, content(sqlite)) == (postgres.status_code, content(postgres)), described
        for name in COMPARED_HEADERS:
            assert sqlite.headers.get_list(name) == postgres.headers.get_list(name), described
        return sqlite


def content(response: httpx2.Response) -> Any:
    # PostgreSQL writes empty text as "" to distinguish it from a missing value; CSV readers don't.
    if not response.headers.get("content-type", "").startswith("text/csv"):
        return response.text
    separator = next(character for character in ",;\t" if character in response.text.partition("\r\n")[0])
    return list(csv.reader(io.StringIO(response.text, newline=""), delimiter=separator))


async def log_in_as_manager(twins: Twins, requests: RandomRequests, mode: str) -> None:
    """Add a management user with a session and an API token; there may be no other."""
    new = {"name": "Ada", "email": f"manager{twins.sent}@x", "password": PASSWORD, "role": "ceo"}
    await twins.send("off", "POST", "/api/auth/users", json=new)
    requests.learn("", await twins.send(mode, "POST", "/api/auth/login", json=new))
    path, session = "/api/auth/tokens", {"authorization": f"Bearer {requests.bearers[-1]}"} if requests.bearers else {}
    token = {"name": "all", "scopes": ["users:write", "tasks:read", "tasks:write"], "current_password": PASSWORD}
    requests.learn(path, await twins.send(mode, "POST", path, json=token, headers=session))


@pytest.mark.timeout(0)  # a loaded machine takes minutes
@pytest.mark.parametrize("count", [300, pytest.param(10_000, marks=pytest.mark.long)])
async def test_both_databases_send_the_same_responses_to_random_requests(
    sqlite_url: str, postgres_url: str, monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    seed = secrets.randbits(32) if count > 300 else 1
    randomness, clock, successes = SeededRandomness(), Clock(), Counter[str]()
    randomness.patch(monkeypatch)
    async with AsyncExitStack() as stack:
        apis = {}
        for mode, settings in MODES.items():
            pair = [api_starter(url, clock)(**UNLIMITED, **settings) for url in (sqlite_url, postgres_url)]
            first, second = [await stack.enter_async_context(api) for api in pair]
            apis[mode] = (first, second)
        twins, choose, mode = Twins(randomness, clock, apis, seed), random.Random(seed), "off"  # noqa: S311 - no secret
        requests = RandomRequests((await apis["off"][0].client.get("/openapi.json")).json(), choose)
        for step in range(1, count + 1):
            if step % 20 == 1:
                mode = choose.choice(list(MODES))
                clock.now += timedelta(hours=choose.choice((0, 0, 0, 5, 26)))
                await log_in_as_manager(twins, requests, mode)
            name, method, path, request = requests.next()
            response = await twins.send(mode, method, path, **request)
            requests.learn(path, response)
            successes[name] += response.is_success
    if count > 300:  # fewer do not succeed with every operation
        assert (seed, [name for name, found in successes.items() if not found]) == (seed, [])
