"""Pages about the session's orders: a list, and each order's progress, trace and confirmation."""

import asyncio
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response, StreamingResponse
from starlette.routing import Route

from chassis.errors import DomainError
from storefront_service.clients.confirmations import Confirmation
from storefront_service.domain import Catalog, Order, Trace
from storefront_service.pages.cart import view_receipt
from storefront_service.pages.frame import PERSONAL, Pages, found, or_none, require
from storefront_service.web.middleware import CURRENCY_COOKIE, DELIVERY_COOKIE, session_of, set_cookie

# Keep event streams shorter than the shutdown grace period, so that they never delay a shutdown. Browsers reconnect.
_STREAM_SECONDS = 15.0
_POLL_SECONDS = 0.4
# Limit the load: each stream holds a connection and polls its order, and visitors can open any number of streams.
_MAX_STREAMS = 100
# Services export spans every few seconds, so a trace that is still missing after a minute will not arrive.
_TRACE_POLL_SECONDS = 1.0
_TRACE_MAX_DELAY = timedelta(minutes=1)
_PARTS = ("progress", "journal")
_EMAIL_POLICY = "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'self'; sandbox"


@dataclass
class OrderPages(Pages):
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
            require("orders", self.clients.orders.latest(*session_of(request).ids)),
            self.frame(request),
            or_none(self.clients.catalog.current()),
        )
        catalog, begun = catalog or Catalog([]), session_of(request).begun
        return self.render("orders.html", frame, cache=PERSONAL, orders=orders, catalog=catalog, begun=begun)

    async def forget(self, request: Request) -> Response:
        """Empty the cart, and delete the session, address and currency cookies."""
        session, response = session_of(request), RedirectResponse("/orders", 303)
        await or_none(self.clients.carts.empty(session.user_id))  # if emptying fails, the cart still expires on its own
        session.end()
        for name in (DELIVERY_COOKIE, CURRENCY_COOKIE):
            set_cookie(request, response, name, "")
        return response

    async def order(self, request: Request) -> Response:
        order, frame, catalog = await asyncio.gather(
            self._find(request), self.frame(request), or_none(self.clients.catalog.current())
        )
        traces = self.clients.traces
        trace = await traces.of_order(order.order_id, order.created_at) if traces else None
        trace_awaited = traces is not None and not trace and datetime.now(UTC) - order.created_at < _TRACE_MAX_DELAY
        return self.render(
            "order.html",
            frame,
            cache=PERSONAL,
            order=order,
            rows=view_receipt(order.receipt, catalog or Catalog([])).rows if order.receipt else (),
            trace=trace,
            traces_available=traces is not None,
            trace_awaited=trace_awaited,
            live=not order.is_final or trace_awaited,
            repeated="repeated" in request.query_params,
        )

    async def events(self, request: Request) -> Response:
        """Stream the order's progress as server-sent events until the order is final or _STREAM_SECONDS have passed.

        Refuse the stream if too many streams are open. The page then shows no progress until the visitor reloads it.
        """
        order = await self._find(request)
        if self._streams >= _MAX_STREAMS:
            raise HTTPException(503, "too many pages are updated live")
        headers = {"cache-control": PERSONAL, "x-accel-buffering": "no"}
        return StreamingResponse(self._events(order), media_type="text/event-stream", headers=headers)

    async def email(self, request: Request) -> Response:
        confirmation, frame = await asyncio.gather(self._confirmation(request), self.frame(request))
        order_id = request.path_params["order_id"]
        return self.render("email.html", frame, cache=PERSONAL, confirmation=confirmation, order_id=order_id)

    async def email_content(self, request: Request) -> Response:
        """Return the confirmation's HTML for an iframe, with a policy that forbids scripts and external resources."""
        confirmation = await self._confirmation(request)
        framed = {"content-security-policy": _EMAIL_POLICY, "x-frame-options": "SAMEORIGIN", "cache-control": PERSONAL}
        return HTMLResponse(found(confirmation and confirmation.body("html")), headers=framed)

    async def _find(self, request: Request) -> Order:
        ids, order_id = session_of(request).ids, request.path_params["order_id"]
        return found(await require("orders", self.clients.orders.find(ids, order_id)))

    async def _confirmation(self, request: Request) -> Confirmation | None:
        order = await self._find(request)
        return await require("email", self.clients.confirmations.find(order.order_id))

    async def _events(self, order: Order) -> AsyncIterator[str]:
        until = time.monotonic() + _STREAM_SECONDS
        templates = {name: self.templates.get_template(f"order_{name}.html") for name in _PARTS}
        sent: dict[str, str] = {}
        self._streams += 1
        try:
            yield "retry: 1000\n\n"
            while time.monotonic() < until:
                parts = {name: template.render(order=order) for name, template in templates.items()}
                if parts != sent:
                    sent = parts
                    yield "".join(_event(*part) for part in parts.items())
                if order.is_final:
                    async for event in self._trace_events(order, until):
                        yield event
                    yield _event("end", "")
                    return
                await asyncio.sleep(_POLL_SECONDS)
                try:
                    order = await self.clients.orders.find([order.user_id], order.order_id) or order
                except DomainError:
                    yield ": checkout does not respond\n\n"  # keep the stream open: checkout may recover
        finally:
            self._streams -= 1

    async def _trace_events(self, order: Order, until: float) -> AsyncIterator[str]:
        sent: Trace | None = None
        while (traces := self.clients.traces) and time.monotonic() < until:
            trace = await traces.of_order(order.order_id, order.created_at)
            if trace is not None:
                # Services export their spans at different times, so a trace counts as complete once it stops growing.
                if trace == sent:
                    return
                sent = trace
                yield _event("trace", self.templates.get_template("trace.html").render(trace=trace))
            await asyncio.sleep(_TRACE_POLL_SECONDS)


def _event(name: str, data: str) -> str:
    lines = "\n".join(f"data: {line}" for line in data.splitlines()) or "data:"
    return f"event: {name}\n{lines}\n\n"
