"""The control room's pages. A script refetches the open page every second to update its live sections."""

import asyncio
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

from jinja2 import Environment, PackageLoader, StrictUndefined
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from chassis.errors import NotFound
from shop_cli.control_room.api import describe, require_trace, trace_query
from shop_cli.control_room.drawings import places, sparkline
from shop_cli.control_room.room import ControlRoom, Section
from shop_cli.local.service_logs import LogLine, lines_of_trace, read_log
from shop_cli.local.spans import Span, tree_order
from shop_cli.output.visible import visible

_LOG_LINES = 300


def routes(room: ControlRoom, environment: Environment) -> list[Route | Mount]:
    pages = _Pages(room, environment)
    return [
        Route("/", pages.overview),
        Route("/traces/{trace_id}", pages.trace),
        Route("/logs/{name}", pages.log),
        Route("/services/{name}/{action}", pages.act, methods=["POST"]),
        Route("/{section}", pages.section, methods=["GET", "POST"]),
        Mount("/static", StaticFiles(directory=Path(__file__).parent / "static")),
    ]


def templates(sections: Mapping[str, Section], storefront: str | None = None) -> Environment:
    environment = Environment(
        loader=PackageLoader("shop_cli.control_room"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=lambda value: visible(value) if type(value) is str else value,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["clock"] = lambda nanos: f"{datetime.fromtimestamp(nanos / 1e9, UTC):%H:%M:%S.%f}"[:-3]
    environment.filters["sparkline"] = sparkline
    environment.globals |= {"sections": sections, "storefront": storefront}
    return environment


class _Pages:
    def __init__(self, room: ControlRoom, environment: Environment) -> None:
        self._room = room
        self._environment = environment
        self._fragments = {name: environment.from_string(section.template) for name, section in room.sections.items()}

    async def overview(self, request: Request) -> Response:
        return self._render("overview", **await self._values(request))

    async def section(self, request: Request) -> Response:
        """Show a section on its own page, or handle its form."""
        name = request.path_params["section"]
        if (section := self._room.sections.get(name)) is None:
            raise NotFound(f"there is no page {name}", reason="PAGE_NOT_FOUND")
        if request.method == "POST":
            await section.act(dict(parse_qsl((await request.body()).decode(errors="replace"))))
            return RedirectResponse(section.page, 303)
        return self._render("section", **await self._values(request), name=name, fragment=self._fragments[name])

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

    async def _values(self, request: Request) -> dict[str, Any]:
        room, query = self._room, trace_query(request)
        calls = room.telemetry.calls.of_calls(time.time())
        return {
            **await describe(room),
            **room.sections,
            "fragments": self._fragments,
            "calls": calls,
            "places": places(calls),
            "states": {process.name: process.state for process in room.processes},
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
