"""The control room's pages. Server-sent events update the sections of open pages."""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

from jinja2 import Environment, PackageLoader, StrictUndefined
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response, StreamingResponse
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from shop_cli.control_room.api import describe, require_trace, trace_query
from shop_cli.control_room.drawings import places, sparkline
from shop_cli.control_room.room import ControlRoom, Section
from shop_cli.local.service_logs import LogLine, lines_of_trace, read_log
from shop_cli.local.spans import Span, tree_order
from shop_cli.output.visible import visible

_FRAGMENTS = ("services", "reconciliation", "calls", "traces")
_UPDATE_SECONDS = 1.0
_LOG_LINES = 300


def routes(room: ControlRoom, environment: Environment) -> list[Route | Mount]:
    pages = _Pages(room, environment)
    return [
        Route("/", pages.overview),
        Route("/events", pages.events),
        Route("/traces/{trace_id}", pages.trace),
        Route("/logs/{name}", pages.log),
        Route("/services/{name}/{action}", pages.act, methods=["POST"]),
        *(Route(f"/{name}", partial(_act, section), methods=["POST"]) for name, section in room.sections.items()),
        Mount("/static", StaticFiles(directory=Path(__file__).parent / "static")),
    ]


def templates() -> Environment:
    environment = Environment(
        loader=PackageLoader("shop_cli.control_room"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=lambda value: visible(value) if type(value) is str else value,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"clock": _clock, "sparkline": sparkline}
    return environment


class _Pages:
    def __init__(self, room: ControlRoom, environment: Environment) -> None:
        self._room = room
        self._environment = environment
        self._fragments = {name: environment.get_template(f"_{name}.html") for name in _FRAGMENTS}
        for name, section in room.sections.items():
            self._fragments[name] = environment.from_string(section.template)

    async def overview(self, request: Request) -> Response:
        return self._render("overview", **await self._values(request), query_string=request.url.query)

    async def events(self, request: Request) -> Response:
        return StreamingResponse(self._updates(request), media_type="text/event-stream")

    async def trace(self, request: Request) -> Response:
        trace_id = request.path_params["trace_id"]
        lines = await asyncio.to_thread(lines_of_trace, [process.log_path for process in self._room.shop], trace_id)
        # Logs are kept longer than spans, so a trace may have log lines but no spans.
        spans = self._room.telemetry.trace(trace_id) if lines else require_trace(self._room, trace_id)
        return self._render("trace", trace_id=trace_id, bars=waterfall(spans), lines=lines)

    async def log(self, request: Request) -> Response:
        process = self._room.process(request.path_params["name"])
        lines: list[LogLine] = await asyncio.to_thread(read_log, process.log_path, _LOG_LINES)
        return self._render("log", name=process.name, path=process.log_path, lines=lines)

    async def act(self, request: Request) -> Response:
        self._room.act(request.path_params["action"], request.path_params["name"])
        return RedirectResponse("/", 303)

    async def _updates(self, request: Request) -> AsyncIterator[str]:
        """Yield the changed sections as HTML, once a second, until the browser disconnects or the shop stops."""
        sent: dict[str, str] = {}
        while not self._room.closing.is_set():
            values = await self._values(request)
            fragments = {name: template.render(values) for name, template in self._fragments.items()}
            changed = {name: html for name, html in fragments.items() if sent.get(name) != html}
            sent = fragments
            yield f"data: {json.dumps(changed)}\n\n" if changed else ": unchanged\n\n"
            with suppress(TimeoutError):
                async with asyncio.timeout(_UPDATE_SECONDS):
                    await self._room.closing.wait()

    async def _values(self, request: Request) -> dict[str, Any]:
        room, query = self._room, trace_query(request)
        calls = room.telemetry.calls.of_calls(time.time())
        return {
            **await describe(room),
            **room.sections,
            "sections": room.sections,
            "fragments": self._fragments,
            "calls": calls,
            "places": places(calls),
            "states": room.monitor.states,
            "traces": room.telemetry.summaries(query),
            "stored": room.telemetry.stored,
            "sort": query.sort,
            "query": request.query_params,
            "names": [process.name for process in room.shop],
        }

    def _render(self, template: str, **values: Any) -> Response:
        return HTMLResponse(self._environment.get_template(f"{template}.html").render(values))


def waterfall(spans: Sequence[Span]) -> list[dict[str, Any]]:
    """Return a bar for each span, in tree order. `left` and `width` are percentages of the trace's duration."""
    start = min((span.started_nanos for span in spans), default=0)
    length = max(1, max((span.ended_nanos for span in spans), default=0) - start)
    colours = {name: number % 10 for number, name in enumerate(sorted({span.service for span in spans}))}
    return [
        {
            "span": span,
            "depth": min(depth, 12),
            "colour": colours[span.service],
            "left": 100 * (span.started_nanos - start) / length,
            "width": max(0.2, 100 * (span.ended_nanos - span.started_nanos) / length),
        }
        for depth, span in tree_order(spans)
    ]


def _clock(nanos: int) -> str:
    return datetime.fromtimestamp(nanos / 1e9, UTC).strftime("%H:%M:%S.%f")[:-3]


async def _act(section: Section, request: Request) -> Response:
    await section.act(dict(parse_qsl((await request.body()).decode(errors="replace"))))
    return RedirectResponse("/", 303)
