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
from collections import Counter, defaultdict, deque
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import httpx2
import pytest

from employee_api.access import SESSION_COOKIE
from shop_kit.employee_api import UNKNOWN_ID, Api, Clock, api_starter

COMPARED_HEADERS = ("content-type", "etag", "location", "set-cookie", "idempotency-replayed", "www-authenticate")
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
TITLES = ["Water plants", "water PLANTS", "Éclair", "éclair", "100% _done_ /", "ΣΑΣ", "İs"]
EMAILS = ("ada@x", "ADA@X ", "e\u0301va@x", "\u00c9va@x", "Stra\u00dfe@x", "STRASSE@x", *(f"{n}@x" for n in range(60)))
DATES = (None, "2026-01-31", "2028-02-29", "0001-01-01", "9999-12-31")
# What the two databases could treat differently: letters of both cases, wildcards, extreme dates.
VALUES: dict[str, Sequence[Any]] = {
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
    "idempotency-key": ("k1", "k2", "k3"),
    "accept": ("application/json", "application/problem+json"),
}
USER, TASK = "/api/auth/users/{id}", "/api/tasks/{id}"
RESOURCES = dict.fromkeys(("assignee", "reporter", "author", "actor"), USER) | {"subject": TASK, "task": TASK}


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


class RandomRequests:
    """Makes requests from an API description, with ids, tokens, tags and cursors of earlier responses."""

    def __init__(self, document: dict[str, Any], choose: random.Random) -> None:
        paths = document["paths"]
        described = [path for path in paths if path.startswith("/api/")]
        self._operations = [(path, method, paths[path][method]) for path in described for method in paths[path]]
        self._schemas = document["components"]["schemas"]
        self._choose = choose
        self._resources = deque[str]([], 2000)  # their paths
        self._learned = defaultdict[str, list[str]](list)  # values by the names of fields; cursors by path
        self.bearers: list[str] = []

    def next(self) -> tuple[str, str, str, dict[str, Any]]:
        """Return the name of an operation and a request to it: method, path, and the arguments of the client."""
        path, method, operation = self._choose.choice(self._operations)
        sent: dict[str, dict[str, Any]] = {"header": {"user-agent": "twin"} | self._bearer(), "query": {}, "path": {}}
        accept = {"in": "header", "name": "accept", "schema": {}}
        for parameter in (accept, *operation.get("parameters", [])):
            value = self._value(parameter["name"].lower(), parameter["schema"], path)
            if value is not None and self._happens(0.25):
                sent[parameter["in"]][parameter["name"]] = value
        sent["query"] |= {"unknown": "1"} if self._happens(0.03) else {}
        request = {"headers": sent["header"], "params": sent["query"]}
        if "requestBody" in operation:
            request["json"] = self._body(operation["requestBody"]["content"]["application/json"]["schema"], path)
        return operation["operationId"], method.upper(), self._path(path), request

    def learn(self, path: str, response: httpx2.Response) -> None:
        """Remember what further requests can name."""
        if cookie := response.cookies.get(SESSION_COOKIE):
            self.bearers.append(cookie)
        for header in ("if-match", "if-none-match"):
            self._learned[header] += response.headers.get_list("etag")
        if not response.is_success or response.headers["content-type"] != "application/json":
            return
        found = response.json()
        items = found if isinstance(found, list) else found.get("items", [found])
        self._resources += [f"{path}/{item['id']}" for item in reversed(items) if "id" in item]  # the newest is first
        if items == [found] and "token" in found:
            if found["token"].startswith("shop_"):
                self.bearers.insert(-1, found["token"])  # the session stays the newest
            self._learned["invite" if "role" in found else "token"].append(found["token"])
        elif items is not found and found.get("next"):
            self._learned[path].append(found["next"])

    def _happens(self, probability: float) -> bool:
        return self._choose.random() < probability

    def _bearer(self) -> dict[str, str]:
        if not self.bearers or self._happens(0.05):
            return {}
        # Mostly the newest session or API token: others have ended.
        newest = self.bearers[-1:] if self._happens(0.7) else self.bearers
        return {"authorization": f"Bearer {self._choose.choice(newest)}"}

    def _known(self, template: str) -> list[str]:
        """Return the paths of the newest resources of a kind."""
        pattern = re.compile(re.sub(r"\{\w+\}", "[^/]+", template))
        return [path for path in self._resources if pattern.fullmatch(path)][-12:]

    def _path(self, template: str) -> str:
        resource, brace, action = template.rpartition("}")
        known = self._known(resource + brace)
        if known and self._happens(0.9):
            return self._choose.choice(known) + action
        return re.sub(r"\{\w+\}", UNKNOWN_ID, template)

    def _body(self, schema: dict[str, Any], path: str) -> dict[str, Any]:
        schema = self._resolved(schema)
        required = schema.get("required", [])
        names = [name for name in schema["properties"] if self._happens(0.97 if name in required else 0.5)]
        body = {name: self._value(name, schema["properties"][name], path) for name in names}
        return body | ({"unknown": 1} if self._happens(0.03) else {})

    def _value(self, name: str, schema: dict[str, Any], path: str) -> Any:
        if name in ("token", "invite", "cursor", "if-match", "if-none-match"):
            newest = self._learned[path if name == "cursor" else name][-3:]
            return self._choose.choice([*newest, "*" if name.startswith("if-") else None])
        if name in VALUES:
            return self._choose.choice(VALUES[name])
        if resource := RESOURCES.get(name.removesuffix("_id")):
            ids = [path.rpartition("/")[2] for path in self._known(resource)]
            return self._choose.choice([*ids, UNKNOWN_ID, None, None])
        schema = self._resolved(schema)
        if "enum" in schema:
            return self._choose.choice(schema["enum"])
        if schema["type"] == "array":
            item = name.removesuffix("s")
            return [self._value(item, schema["items"], path) for _ in range(self._choose.randint(1, 3))]
        return self._happens(0.5) if schema["type"] == "boolean" else self._choose.randint(1, 30)

    def _resolved(self, schema: dict[str, Any]) -> dict[str, Any]:
        schema = schema.get("anyOf", [schema])[0]  # a type or null
        resolved: dict[str, Any] = self._schemas[schema["$ref"].rpartition("/")[2]] if "$ref" in schema else schema
        return resolved


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
    requests.learn("/api/auth/sessions", await twins.send(mode, "GET", "/api/auth/sessions", headers=session))


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
