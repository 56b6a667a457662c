"""The storefront on a port, with a fake checkout: it records its visitors, and a test can make it slow or wrong."""

import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from starlette.responses import HTMLResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from shop_kit.http_serving import serve_http
from shop_kit.storefront import storefront
from shop_kit.storefront_backends import FakeCheckout
from shop_kit.waiting import wait_until


@dataclass
class VisitedStorefront:
    """What customers did, and how the storefront misbehaves.

    Attributes:
        arrived: when requests arrived, on the clock of `time.monotonic`.
        paths: requests by method and path.
        stalled_until: no request is answered before this time.
        broken: this page, or all pages below it, have the status 503.
    """

    checkout: FakeCheckout
    url: str = ""
    arrived: list[float] = field(default_factory=list)
    paths: Counter[str] = field(default_factory=Counter)
    headers: list[dict[str, str]] = field(default_factory=list)
    stalled_until: float = 0.0
    broken: str | None = None

    def recording(self, app: ASGIApp) -> ASGIApp:
        async def serve(scope: Scope, receive: Receive, send: Send) -> None:
            path = scope["path"]
            self.arrived.append(time.monotonic())
            self.paths[f"{scope['method']} {path}"] += 1
            self.headers.append({name.decode(): value.decode() for name, value in scope["headers"]})
            await wait_until(lambda: time.monotonic() >= self.stalled_until)
            is_broken = self.broken == path or path.startswith(f"{self.broken}/")
            await (HTMLResponse("broken", 503) if is_broken else app)(scope, receive, send)

        return serve


@asynccontextmanager
async def visited_storefront() -> AsyncIterator[VisitedStorefront]:
    """Serve the storefront. Its cookies are Secure, as behind a proxy that ends TLS, which these customers pass by."""
    async with storefront(secure_cookie=True) as shop:
        visited = VisitedStorefront(shop.backends.checkout)
        async with serve_http(visited.recording(shop.app)) as visited.url:
            yield visited
