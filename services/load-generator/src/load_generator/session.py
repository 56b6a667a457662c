"""One person's visit to the storefront: requests on a schedule, with the cookies, redirects and forms of a browser."""

import random
import time
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

import gevent
from gevent.event import Event
from locust.contrib.fasthttp import FAILURE_EXCEPTIONS, FastHttpSession, FastResponse, LocustUserAgent
from locust.env import Environment

from load_generator.figures import Figures
from load_generator.pages import Form, Page, name_of

# After so long without a byte a person gives up.
PATIENCE_SECONDS = 30.0

# The storefront passes the baggage on, so that every service can recognize the traffic of simulated customers.
_HEADERS = {"User-Agent": "shop-load-generator", "Accept": "text/html", "baggage": "synthetic_request=true"}


class SessionFailed(Exception):
    """A page was not what it should be; the failure is recorded."""


class SessionStopped(Exception):
    """The run ended before this session."""


class Session:
    """A session, whose schedule is fixed in advance: each request has a time at which it should start.

    The first one should start when the person arrives, and each other one a think time after the one before should have
    started, however late that was answered. A request is never sent before the answer to the one before. Its latency
    counts from when it should have started, so whatever made it late is part of it.
    """

    def __init__(
        self,
        environment: Environment,
        figures: Figures,
        *,
        arrival: float,
        think_seconds: float,
        generator: random.Random,
        stopping: Event,
    ) -> None:
        base_url = (environment.host or "").rstrip("/")
        parts = urlsplit(base_url)
        self._posting = {"Origin": f"{parts.scheme}://{parts.netloc}", "Sec-Fetch-Site": "same-origin"}
        self._client = FastHttpSession(
            base_url, environment.events.request, user=None, insecure=False, concurrency=2, **_options(PATIENCE_SECONDS)
        )
        self._url = base_url
        self._figures = figures
        self._planned = arrival
        self._think_seconds = think_seconds
        self._stopping = stopping
        self.random = generator
        self.order_id: str | None = None

    def close(self) -> None:
        """Close the connections."""
        self._client.client.close()

    def think(self) -> None:
        """Let the person look at the page: the next request should start 0.5 to 1.5 times the mean think time later."""
        self._planned += self._think_seconds * self.random.uniform(0.5, 1.5)

    def open(self, path: str) -> Page:
        """Request a page and return it. Raise SessionFailed or SessionStopped."""
        self._wait()
        return self._request("GET", path)

    def submit(self, form: Form, **fields: str) -> Page:
        """Post a form with its hidden fields and these, and return the page that follows. Raises like `open`."""
        self._wait()
        return self._request("POST", form.action, {**form.hidden, **fields})

    def submit_twice(self, form: Form, **fields: str) -> tuple[Page, Page]:
        """Post a form twice at the same time, as a double click does, and return both pages."""
        self._wait()
        clicks = [gevent.spawn(self._attempt, form, fields) for _ in range(2)]
        first, second = (click.get() for click in clicks)
        if isinstance(first, SessionFailed):
            raise first
        if isinstance(second, SessionFailed):
            raise second
        return first, second

    def submit_and_hang_up(self, form: Form, *, after_seconds: float, **fields: str) -> None:
        """Post a form, and close the connection unless the answer begins in time. Neither is measured."""
        self._wait()
        agent = LocustUserAgent(cookiejar=self._client.cookiejar, **_options(after_seconds) | {"max_redirects": 0})
        try:
            agent.urlopen(f"{self._url}{form.action}", "POST", self._posting, {**form.hidden, **fields})
        except FAILURE_EXCEPTIONS:
            return
        finally:
            agent.close()

    def expect(self, condition: object, page: Page, reason: str) -> None:
        """Require what a person should see on a page. Else record the reason, and raise SessionFailed."""
        if not condition:
            self._figures.record_failure(page, reason)
            raise SessionFailed(reason)

    def form(self, page: Page, action: str) -> Form:
        """Return a form that must be on a page."""
        form = page.form(action)
        self.expect(form, page, f"no form for {action}")
        assert form is not None  # noqa: S101 - for the type checker
        return form

    def ordered(self, page: Page) -> None:
        """Require the page of an order, the first or the same again, and count it."""
        order_id = page.order_id()
        self.expect(order_id, page, "no order page")
        self.expect(page.order_ids() <= {order_id}, page, "the order page shows another order")
        if self.order_id is None:
            self.order_id = order_id
            self._figures.record_order((time.monotonic() - self._planned) * 1000)
        else:
            self.expect(order_id == self.order_id, page, "a repeat led to another order")

    def repeats(self) -> None:
        """Count a repetition of an order."""
        self._figures.record_repeat()

    def _wait(self) -> None:
        if self._stopping.wait(max(0.0, self._planned - time.monotonic())):
            raise SessionStopped

    def _attempt(self, form: Form, fields: Mapping[str, str]) -> Page | SessionFailed:
        try:
            return self._request("POST", form.action, {**form.hidden, **fields})
        except SessionFailed as failed:
            return failed

    def _request(self, method: str, path: str, fields: dict[str, str] | None = None) -> Page:
        name, headers = name_of(path), self._posting if fields is not None else None
        with self._client.request(method, path, name, fields, catch_response=True, headers=headers) as response:
            response.request_meta["response_time"] = (time.monotonic() - self._planned) * 1000
            reason = _failure(response, response.request_meta["exception"])
            response.request_meta["exception"] = reason
            page = Page(method, name, _path(response), response.text or "")
        if reason:
            raise SessionFailed(reason)
        return page


def _options(timeout_seconds: float) -> dict[str, Any]:
    return {
        "headers": _HEADERS,
        "network_timeout": timeout_seconds,
        "connection_timeout": timeout_seconds,
        "max_redirects": 5,
        "max_retries": 0,
    }


def _failure(response: FastResponse, error: Exception | None) -> str | None:
    """Return why a request failed, as one of few reasons: without ids or times, because the reasons are counted."""
    if response.status_code:
        return f"HTTP {response.status_code}" if response.status_code >= 400 else None  # noqa: PLR2004
    cause = getattr(error, "original", error)
    return f"no answer: {type(cause).__name__}"


def _path(response: FastResponse) -> str:
    parts = urlsplit(response.url or "")
    return parts.path + (f"?{parts.query}" if parts.query else "")
