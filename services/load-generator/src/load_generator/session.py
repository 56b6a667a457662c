"""A visit to the storefront. Requests follow a schedule; cookies, redirects and forms work as in a browser."""

import time
from contextlib import closing, suppress
from dataclasses import dataclass
from http.cookiejar import CookieJar, DefaultCookiePolicy
from random import Random
from typing import cast
from urllib.parse import urlsplit

import gevent
from gevent.event import AsyncResult
from gevent.ssl import create_default_context
from locust.contrib.fasthttp import FAILURE_EXCEPTIONS, FastResponse, LocustBadStatusCode, LocustUserAgent
from locust.env import Environment

from load_generator.figures import Figures
from load_generator.pages import Page, name_of

PATIENCE_SECONDS = 30.0  # how long a customer waits for a response

# A storefront with TRUST_TRACES=1 passes the baggage on, so that every service can recognize simulated customers.
_HEADERS = {"User-Agent": "shop-load-generator", "Accept": "text/html", "baggage": "synthetic_request=true"}


class SessionEnded(Exception):
    """The run ended before this session did, or a page was not as expected; that failure has been recorded."""


@dataclass
class Session:
    """A session that plans when each request starts, independently of responses.

    Each request is planned to start one think time after the previous request's planned start. If the previous response
    is late, the request is sent late. Latency counts from the planned start, so it includes this delay (no coordinated
    omission). Requests planned for after the end of the run are not sent.

    Attributes:
        planned: when the next request should start, on the monotonic clock; initially, the session's arrival time.
        end: when the run ended, on the monotonic clock; not set before then.
        order_id: the id of the order that the session placed; None until the session has seen the order's page.
    """

    environment: Environment
    figures: Figures
    origin: str
    planned: float
    think_seconds: float
    random: Random
    end: "AsyncResult[float]"
    order_id: str | None = None

    def __post_init__(self) -> None:
        self._posting = {"Origin": self.origin, "Sec-Fetch-Site": "same-origin"}
        # Send secure cookies over http too, because in a cluster the storefront serves http behind an https URL.
        self._cookies = CookieJar(DefaultCookiePolicy(secure_protocols=("https", "http")))
        self._agent = _agent(self._cookies, timeout_seconds=PATIENCE_SECONDS, max_redirects=5)

    def close(self) -> None:
        self._agent.close()

    def think(self) -> None:
        """Plan the next request after a random think time, 0.5 to 1.5 times the mean."""
        self.planned += self.think_seconds * self.random.uniform(0.5, 1.5)

    def open(self, path: str) -> Page:
        """Request a page and return it. Raise SessionEnded if that fails, or if the run ends first."""
        self._wait()
        return self._request("GET", path)

    def submit(self, page: Page, action: str, **fields: str) -> Page:
        """Post a form of the page with its hidden fields and `fields`. Return the next page.

        Raise SessionEnded if that fails, if the run ends first, or if the page has no form with this action.
        """
        return self._request("POST", action, self._fill(page, action, fields))

    def submit_twice(self, page: Page, action: str, **fields: str) -> list[Page]:
        """Post a form twice at the same time, like a double click, and return both pages."""
        filled = self._fill(page, action, fields)
        clicks = gevent.joinall([gevent.spawn(self._request, "POST", action, filled) for _ in range(2)])
        return [click.get() for click in clicks]

    def submit_and_hang_up(self, page: Page, action: str, *, after_seconds: float, **fields: str) -> None:
        """Post a form, and hang up unless a response arrives within `after_seconds`. Don't measure the request."""
        filled = self._fill(page, action, fields)
        agent = _agent(self._cookies, timeout_seconds=after_seconds, max_redirects=0)
        with closing(agent), suppress(*FAILURE_EXCEPTIONS):
            agent.urlopen(f"{self.origin}{action}", "POST", self._posting, filled)

    def expect(self, condition: object, page: Page, reason: str) -> None:
        """If the condition is false, record the page as failed for this reason and raise SessionEnded."""
        if not condition:
            self.figures.record_failure(page, reason)
            raise SessionEnded(reason)

    def ordered(self, page: Page) -> None:
        """Check that the page shows the session's only order, and count the order the first time."""
        order_id = page.order_id()
        self.expect(order_id, page, "no order page")
        self.expect(page.order_ids() <= {order_id}, page, "the order page shows another order")
        if self.order_id is None:
            self.order_id = order_id
            self.figures.record_order((time.monotonic() - self.planned) * 1000)
        else:
            self.expect(order_id == self.order_id, page, "a repeat led to another order")

    def _wait(self) -> None:
        """Wait until the next request's planned start. Raise SessionEnded if the run ends first."""
        ended_at = self.end.wait(max(0.0, self.planned - time.monotonic()))
        if ended_at is not None and self.planned > ended_at:
            raise SessionEnded("the run ended")

    def _fill(self, page: Page, action: str, fields: dict[str, str]) -> dict[str, str]:
        """Return the fields to post when the next request is due. Raise SessionEnded if there is no such form."""
        self.expect(action in page.forms, page, f"no form for {action}")
        self._wait()
        return {**page.forms[action], **fields}

    def _request(self, method: str, path: str, fields: dict[str, str] | None = None) -> Page:
        planned, started = self.planned, time.time()
        page, text, final_path, reason = name_of(path), "", path, None
        try:
            headers = self._posting if fields is not None else None
            response = cast("FastResponse", self._agent.urlopen(f"{self.origin}{path}", method, headers, fields))
            text = response.text or ""
            final_path = urlsplit(response.url or path)._replace(scheme="", netloc="").geturl()
        except FAILURE_EXCEPTIONS as error:
            reason = _reason(error)
        self.environment.events.request.fire(  # type: ignore[no-untyped-call]
            request_type=method,
            name=page,
            response_time=(time.monotonic() - planned) * 1000,
            response_length=len(text),
            exception=reason,
            context={},
            start_time=started,
            url=path,
        )
        if reason:
            raise SessionEnded(reason)
        return Page.read(method, page, final_path, text)


def _agent(cookies: CookieJar, *, timeout_seconds: float, max_redirects: int) -> LocustUserAgent:
    return LocustUserAgent(
        cookiejar=cookies,
        headers=_HEADERS,
        max_redirects=max_redirects,
        max_retries=0,
        concurrency=2,  # a session sends two requests at once when it double-clicks
        connection_timeout=timeout_seconds,
        network_timeout=timeout_seconds,
        ssl_context_factory=create_default_context,
    )


def _reason(error: BaseException) -> str:
    """Return why a request failed. Leave out ids and times, because failures are counted by reason."""
    if isinstance(error, LocustBadStatusCode):
        return f"HTTP {error.__dict__['code']}"
    cause = getattr(error, "original", error)
    return f"no answer: {type(cause).__name__}"
