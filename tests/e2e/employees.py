"""Clients of the employee API that keep their sessions: `python employees.py URL SECONDS CLIENTS`.

Reads the e-mail and the password of a user with a management role from the environment, `EMAIL` and `PASSWORD`. Each
client signs in once, then adds a task, reads, changes and lists, again and again; at the end every task must be there
once. A request fails if it has no answer or an unexpected one. Prints a summary; exits 1 if a request failed.
"""

import http.client
import itertools
import json
import os
import sys
import threading
import time
import uuid
from collections import Counter
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

COOKIES = ("__Host-session", "__Host-device")
_TIMEOUT_SECONDS = 15
_PAUSE_SECONDS = 0.1
_WARM_UP_SECONDS = 60


@dataclass(frozen=True)
class Answer:
    """The response to a request."""

    status: int
    headers: dict[str, str]
    cookies: dict[str, str]
    body: Any


def send(url: str, method: str, path: str, body: Any = None, headers: dict[str, str] | None = None) -> Answer:
    """Send a request over a connection of its own. Raise OSError or HTTPException when there is no answer."""
    connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=_TIMEOUT_SECONDS)
    try:
        content = None if body is None else json.dumps(body).encode()
        connection.request(method, path, content, {"Content-Type": "application/json", **(headers or {})})
        response = connection.getresponse()
        text = response.read()
        cookies = dict(cookie.split(";", 1)[0].split("=", 1) for cookie in response.headers.get_all("Set-Cookie") or ())
        sent = {name.lower(): value for name, value in response.headers.items()}
        return Answer(response.status, sent, cookies, json.loads(text) if text else None)
    finally:
        connection.close()


@dataclass
class Tally:
    """What all clients did."""

    answered: Counter[str] = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)
    titles: set[str] = field(default_factory=set)
    lock: threading.Lock = field(default_factory=threading.Lock)


class Client:
    """Signs in once and then works with its session."""

    def __init__(self, url: str, tally: Tally) -> None:
        self._url = url
        self._tally = tally
        self._headers: dict[str, str] = {}

    def sign_in(self, email: str, password: str) -> None:
        """Sign in. Raise OSError if that is refused."""
        answer = send(self._url, "POST", "/api/auth/login", {"email": email, "password": password})
        if answer.status != 200:
            raise OSError(f"the login was answered {answer.status}")
        self._headers["Cookie"] = "; ".join(
            f"{name}={answer.cookies[name]}" for name in COOKIES if name in answer.cookies
        )

    def work(self, until: float) -> None:
        """Make rounds of requests until then."""
        while time.monotonic() < until:
            self.make_round()
            time.sleep(_PAUSE_SECONDS)

    def make_round(self) -> None:
        """Add a task and read, change and list it; record every failure."""
        title = uuid.uuid4().hex
        added = self._request("POST", "/api/tasks", 201, body={"title": title}, headers={"Idempotency-Key": title})
        if added is None:
            return
        with self._tally.lock:
            self._tally.titles.add(title)
        path = f"/api/tasks/{added.body['id']}"
        read = self._request("GET", path)
        if read is not None:
            tag = {"If-Match": read.headers["etag"]} if "etag" in read.headers else {}
            self._request("PATCH", path, body={"status": "done"}, headers=tag)
        self._request("GET", "/api/auth/users")

    def titles(self) -> Counter[str]:
        """Return how often each task is listed."""
        found: Counter[str] = Counter()
        cursor = ""
        while True:
            page = send(self._url, "GET", f"/api/tasks?limit=200{cursor}", headers=self._headers).body
            found.update(task["title"] for task in page["items"])
            if page["next"] is None:
                return found
            cursor = f"&cursor={page['next']}"

    def _request(
        self,
        method: str,
        path: str,
        expected: int = 200,
        *,
        body: Any = None,
        headers: dict[str, str] | None = None,
    ) -> Answer | None:
        name = f"{method} {path.split('/')[2]}"
        try:
            answer = send(self._url, method, path, body, {**self._headers, **(headers or {})})
        except (OSError, http.client.HTTPException) as error:
            failure = f"{name}: {type(error).__name__}"
        else:
            if answer.status == expected:
                with self._tally.lock:
                    self._tally.answered[name] += 1
                return answer
            failure = f"{name}: {answer.status}"
        with self._tally.lock:
            self._tally.failures.append(f"{time.strftime('%H:%M:%S')} {failure}")
        return None


def main(url: str, seconds: float, clients: int) -> int:
    """Let clients work for so long; return 0 if every request was answered as expected and no write is lost."""
    tally = Tally()
    working = [Client(url, tally) for _ in range(clients)]
    for client in working:
        sign_in_when_reachable(client)
    print("started", flush=True)  # noqa: T201
    until = time.monotonic() + seconds
    threads = [threading.Thread(target=client.work, args=(until,)) for client in working]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    listed = working[0].titles()
    lost, doubled = tally.titles - set(listed), [title for title, count in listed.items() if count > 1]
    summary = {
        "answered": dict(tally.answered),
        "failed": len(tally.failures),
        "lost": len(lost),
        "doubled": len(doubled),
    }
    print(json.dumps(summary), *itertools.islice(tally.failures, 10), sep="\n", flush=True)  # noqa: T201
    return 1 if tally.failures or lost or doubled else 0


def sign_in_when_reachable(client: Client) -> None:
    """Sign in; repeat it for a minute, because network policies take a moment to admit a new pod."""
    deadline = time.monotonic() + _WARM_UP_SECONDS
    while True:
        try:
            client.sign_in(os.environ["EMAIL"], os.environ["PASSWORD"])
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(1)
        else:
            return


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], float(sys.argv[2]), int(sys.argv[3])))
