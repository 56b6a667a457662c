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
import time
import uuid
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple
from urllib.parse import urlsplit

COOKIES = ("__Host-session", "__Host-device")
_TIMEOUT_SECONDS = 15
_PAUSE_SECONDS = 0.1
_WARM_UP_SECONDS = 60


class Answer(NamedTuple):
    """The response to a request."""

    status: int
    headers: http.client.HTTPMessage
    body: Any


class Client:
    """Signs in once and then works with its session."""

    def __init__(self, url: str) -> None:
        self._host = urlsplit(url).netloc
        self._cookie = ""
        self.answered: Counter[str] = Counter()
        self.failures: list[str] = []
        self.added: set[str] = set()

    def send(self, method: str, path: str, body: Any = None, **headers: str) -> Answer:
        """Send a request over a connection of its own. Raise OSError or HTTPException when there is no answer."""
        connection = http.client.HTTPConnection(self._host, timeout=_TIMEOUT_SECONDS)
        try:
            content = None if body is None else json.dumps(body).encode()
            named = {name.replace("_", "-"): value for name, value in headers.items()}
            connection.request(
                method, path, content, {"Content-Type": "application/json", "Cookie": self._cookie, **named}
            )
            response = connection.getresponse()
            text = response.read()
            return Answer(response.status, response.headers, json.loads(text) if text else None)
        finally:
            connection.close()

    def sign_in(self) -> None:
        """Sign in; repeat it for a minute, because network policies take a moment to admit a new pod."""
        login = {"email": os.environ["EMAIL"], "password": os.environ["PASSWORD"]}
        deadline = time.monotonic() + _WARM_UP_SECONDS
        while True:
            try:
                answer = self.send("POST", "/api/auth/login", login)
            except OSError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(1)
                continue
            if answer.status != http.client.OK:
                sys.exit(f"the login was answered {answer.status}")
            cookies = [cookie.split(";", 1)[0] for cookie in answer.headers.get_all("Set-Cookie") or ()]
            self._cookie = "; ".join(cookie for cookie in cookies if cookie.startswith(COOKIES))
            return

    def work(self, until: float) -> None:
        """Make rounds of requests until then."""
        while time.monotonic() < until:
            self.make_round()
            time.sleep(_PAUSE_SECONDS)

    def make_round(self) -> None:
        """Add a task and read, change and list it; record every failure."""
        title = uuid.uuid4().hex
        added = self._request(http.client.CREATED, "POST", "/api/tasks", {"title": title}, Idempotency_Key=title)
        if added is None:
            return
        self.added.add(title)
        path = f"/api/tasks/{added.body['id']}"
        if read := self._request(http.client.OK, "GET", path):
            tag = {"If_Match": read.headers["ETag"]} if "ETag" in read.headers else {}
            self._request(http.client.OK, "PATCH", path, {"status": "done"}, **tag)
        self._request(http.client.OK, "GET", "/api/auth/users")

    def titles(self) -> Counter[str]:
        """Return how often each task is listed."""
        found: Counter[str] = Counter()
        cursor = ""
        while True:
            page = self.send("GET", f"/api/tasks?limit=200{cursor}").body
            found.update(task["title"] for task in page["items"])
            if page["next"] is None:
                return found
            cursor = f"&cursor={page['next']}"

    def _request(self, expected: int, method: str, path: str, body: Any = None, **headers: str) -> Answer | None:
        name = f"{method} {path.split('/')[2]}"
        try:
            answer = self.send(method, path, body, **headers)
        except (OSError, http.client.HTTPException) as error:
            failure = type(error).__name__
        else:
            if answer.status == expected:
                self.answered[name] += 1
                return answer
            failure = str(answer.status)
        self.failures.append(f"{time.strftime('%H:%M:%S')} {name}: {failure}")
        return None


def main(url: str, seconds: float, number: int) -> int:
    """Let clients work for so long; return 0 if every request was answered as expected and no write is lost."""
    clients = [Client(url) for _ in range(number)]
    for client in clients:
        client.sign_in()
    print("started", flush=True)  # noqa: T201
    with ThreadPoolExecutor(number) as threads:
        list(threads.map(Client.work, clients, itertools.repeat(time.monotonic() + seconds)))
    failures = [failure for client in clients for failure in client.failures]
    listed = clients[0].titles()
    lost = set().union(*(client.added for client in clients)) - set(listed)
    doubled = [title for title, count in listed.items() if count > 1]
    answered = sum((client.answered for client in clients), Counter[str]())
    summary = {"answered": answered, "failed": len(failures), "lost": len(lost), "doubled": len(doubled)}
    print(json.dumps(summary), *failures[:10], sep="\n", flush=True)  # noqa: T201
    return 1 if failures or lost or doubled else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], float(sys.argv[2]), int(sys.argv[3])))
