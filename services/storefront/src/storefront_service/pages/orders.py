"""The session's orders: the list, and the progress, trace and confirmation of each."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response, StreamingResponse
from starlette.routing import Route

from chassis.errors import DomainError
from storefront_service.clients import Clients
from storefront_service.clients.confirmations import Confirmation
from storefront_service.domain import Catalog, Order, Trace
from storefront_service.pages.cart import view_receipt
from storefront_service.pages.frame import CURRENCY_COOKIE, DELIVERY_COOKIE, Pages, PartDown, found, require
from storefront_service.web.headers import PERSONAL
from storefront_service.web.middleware import session_of

# Below the grace period of a drain, so that a stream never delays the end of the process; browsers reconnect.
_STREAM_SECONDS = 15.0
_POLL_SECONDS = 0.4
# Each stream reads the order several times a second, and holds a connection: a visitor can open any number of them.
_MAX_STREAMS = 100
# Spans are exported in batches every few seconds: a trace that has not arrived within a minute will not.
_TRACE_POLL_SECONDS = 1.0
_TRACE_MAX_DELAY = timedelta(minutes=1)
_PARTS = ("progress", "journal")
_EMAIL_POLICY = "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'self'; sandbox"


@dataclass
class OrderPages:
    _pages: Pages
    _clients: Clients
    _streams: int = 0

    def routes(self) -> list[Route]:
        return [
            Route("/orders", self.list_orders),
            Route("/orders/{order_id}", self.order),
            Route("/forget", self.forget, methods=["POST"]),
            Route("/orders/{order_id}/events", self.events),
            Route("/orders/{order_id}/email", self.email),
            Route("/orders/{order_id}/email/content", self.email_content),
        ]

    async def list_orders(self, request: Request) -> Response:
        orders, frame, catalog = await asyncio.gather(
            require("orders", self._clients.orders.of_user(self._pages.user_id(request))),
            self._pages.frame(request),
            _catalog_or_empty(self._pages),
        )
        begun = session_of(request).begun
        return self._pages.render("orders.html", frame, cache=PERSONAL, orders=orders, catalog=catalog, begun=begun)

    async def forget(self, request: Request) -> Response:
        """Sign out: drop the cart, and delete the cookies that lead to it, to the orders and to the last address."""
        session, response = session_of(request), RedirectResponse("/orders", 303)
        with contextlib.suppress(DomainError):  # then it expires by itself
            await self._clients.carts.empty(session.user_id)
        session.end()
        response.delete_cookie(DELIVERY_COOKIE, path="/checkout")
        response.delete_cookie(CURRENCY_COOKIE)
        return response

    async def order(self, request: Request) -> Response:
        order, frame, catalog = await asyncio.gather(
            self._find(request), self._pages.frame(request), _catalog_or_empty(self._pages)
        )
        traces = self._clients.traces
        trace = await traces.of_order(order.order_id, order.created_at)
        trace_awaited = traces.available and not trace and datetime.now(UTC) - order.created_at < _TRACE_MAX_DELAY
        return self._pages.render(
            "order.html",
            frame,
            cache=PERSONAL,
            order=order,
            rows=view_receipt(order.receipt, catalog).rows if order.receipt else (),
            trace=trace,
            traces_available=traces.available,
            trace_awaited=trace_awaited,
            live=not order.state.is_final or trace_awaited,
            repeated="repeated" in request.query_params,
        )

    async def events(self, request: Request) -> Response:
        """Stream the order's progress as server-sent events, until it changes no more or the stream's time is over.

        Refused while there are too many streams: the page remains as it was when it was loaded.
        """
        order = await self._find(request)
        if self._streams >= _MAX_STREAMS:
            raise HTTPException(503, "too many pages are updated live")
        headers = {"cache-control": PERSONAL, "x-accel-buffering": "no"}
        return StreamingResponse(self._counted(self._events(order)), media_type="text/event-stream", headers=headers)

    async def email(self, request: Request) -> Response:
        confirmation, frame = await asyncio.gather(self._confirmation(request), self._pages.frame(request))
        order_id = request.path_params["order_id"]
        return self._pages.render("email.html", frame, cache=PERSONAL, confirmation=confirmation, order_id=order_id)

    async def email_content(self, request: Request) -> Response:
        """Return the HTML of the e-mail for a frame, without scripts, links to other origins or access to the shop."""
        confirmation = await self._confirmation(request)
        headers = {"content-security-policy": _EMAIL_POLICY, "x-frame-options": "SAMEORIGIN"}
        return HTMLResponse(found(confirmation and confirmation.html), headers={**headers, "cache-control": PERSONAL})

    async def _find(self, request: Request) -> Order:
        user_id, order_id = self._pages.user_id(request), request.path_params["order_id"]
        return found(await require("orders", self._clients.orders.find(user_id, order_id)))

    async def _confirmation(self, request: Request) -> Confirmation | None:
        order = await self._find(request)
        return await require("email", self._clients.confirmations.find(order.order_id))

    async def _counted(self, events: AsyncIterator[str]) -> AsyncIterator[str]:
        self._streams += 1
        try:
            async for event in events:
                yield event
        finally:
            self._streams -= 1

    async def _events(self, order: Order) -> AsyncIterator[str]:
        until = time.monotonic() + _STREAM_SECONDS
        sent: dict[str, str] = {}
        yield "retry: 1000\n\n"
        while time.monotonic() < until:
            parts = {name: self._pages.fragment(f"order_{name}.html", {"order": order}) for name in _PARTS}
            if parts != sent:
                sent = parts
                yield "".join(_event(*part) for part in parts.items())
            if order.state.is_final:
                async for event in self._trace_events(order, until):
                    yield event
                yield _event("end", "")
                return
            await asyncio.sleep(_POLL_SECONDS)
            try:
                order = await self._clients.orders.find(order.user_id, order.order_id) or order
            except DomainError:
                yield ": checkout does not respond\n\n"  # try again: it may recover before the stream ends

    async def _trace_events(self, order: Order, until: float) -> AsyncIterator[str]:
        sent: Trace | None = None
        while self._clients.traces.available and time.monotonic() < until:
            trace = await self._clients.traces.of_order(order.order_id, order.created_at)
            if trace is not None:
                # Services export at different times: a trace is complete when it grows no more.
                if trace == sent:
                    return
                sent = trace
                yield _event("trace", self._pages.fragment("trace.html", {"trace": trace}))
            await asyncio.sleep(_TRACE_POLL_SECONDS)


async def _catalog_or_empty(pages: Pages) -> Catalog:
    try:
        return await pages.catalog()
    except PartDown:
        return Catalog([])


def _event(name: str, data: str) -> str:
    lines = "\n".join(f"data: {line}" for line in data.splitlines()) or "data:"
    return f"event: {name}\n{lines}\n\n"
