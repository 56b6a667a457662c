import asyncio
import time
from collections.abc import AsyncIterator
from typing import Any

import httpx2
import pytest
import structlog
from opentelemetry.trace import SpanKind, StatusCode
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route

from chassis import errors
from chassis.http import server as http_server
from chassis.http.server import HttpService, HttpServiceSettings
from chassis.telemetry import logging as chassis_logging
from chassis.telemetry import propagation, semconv
from chassis.telemetry.instruments import Telemetry
from shop_kit.metrics import measured
from shop_kit.serving import Recorded

TRACE_ID, PARENT_ID = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
TRACEPARENT = {"traceparent": f"00-{TRACE_ID}-{PARENT_ID}-01"}


async def show(request: Request) -> Response:
    return PlainTextResponse(request.path_params["name"])


async def remember_session(_request: Request) -> Response:
    propagation.add_baggage("session.id", "5f3a")
    return PlainTextResponse("")


async def fail(_request: Request) -> Response:
    raise RuntimeError("a bug")


async def fail_midway(_request: Request) -> Response:
    async def parts() -> AsyncIterator[str]:
        yield "begun"
        raise RuntimeError("a bug")

    return StreamingResponse(parts())


async def apologize(_request: Request, _error: Exception) -> Response:
    return PlainTextResponse("sorry", 500)


APP = Starlette(
    routes=[
        Route("/things/{name}", show),
        Route("/cached", PlainTextResponse("", headers={"cache-control": "max-age=3600"})),
        Route("/session", remember_session),
        Route("/bug", fail),
        Route("/down", PlainTextResponse("down", 503)),
        Route("/stream", fail_midway),
    ],
    exception_handlers={Exception: apologize},
)


def service(telemetry: Telemetry | None = None, **settings: Any) -> HttpService:
    return HttpService(HttpServiceSettings(**settings), telemetry or Telemetry())


async def fetch(served: HttpService, path: str, method: str = "GET", app: Any = APP, **options: Any) -> httpx2.Response:
    transport = httpx2.ASGITransport(served.wrap(app))
    async with httpx2.AsyncClient(transport=transport, base_url="https://shop.test") as client:
        return await client.request(method, path, **options)


async def test_a_request_for_another_host_is_refused_and_counted_but_not_probes() -> None:
    served = service(allowed_hosts=frozenset({"shop.test", "*.shop.test", "[::1]"}))
    hosts = {
        200: ("SHOP.test:8080", "a.b.shop.test.", "[::1]:80"),
        421: ("rebound.example", "shop.test.evil", "evilshop.test"),
        400: ("a b", "", "shop.test/x", "a@shop.test", "shop.test:x", "shop.test:1:2", "[::1", "a..b", "a,b"),
    }
    for expected, host in ((status, host) for status, names in hosts.items() for host in names):
        found = [await fetch(served, path, headers={"host": host}) for path in ("/things/kettle", "/healthz")]
        assert [response.status_code for response in found] == [expected, 200]
    assert served.telemetry.counter(semconv.HTTP_REFUSALS).values == {(("shop.http.refusal.reason", "host"),): 12}


async def test_a_request_begins_a_trace_that_links_to_its_clients(recorded: Recorded) -> None:
    sent = {"traceparent": f"00-{TRACE_ID}-{PARENT_ID}-00", "tracestate": "shop=keep", "baggage": "session.id=x"}
    served = service(recorded.telemetry)
    await fetch(served, "/things/kettle", headers=sent)  # the client asks not to be sampled
    await fetch(served, "/things/kettle", headers={"traceparent": "00-x"})
    linked, unlinked = recorded.spans()
    assert (linked.parent, unlinked.parent, unlinked.links) == (None, None, ())
    assert f"{linked.context.trace_id:032x}" != TRACE_ID
    assert [f"{link.context.trace_id:032x}-{link.context.span_id:016x}" for link in linked.links] == [
        f"{TRACE_ID}-{PARENT_ID}"
    ]
    assert "keep" not in linked.to_json()
    assert "session.id" not in (linked.attributes or {})


async def test_a_trusted_request_is_a_server_span_of_its_callers_trace_with_its_baggage(recorded: Recorded) -> None:
    served = service(recorded.telemetry, trust_traces=True)
    await fetch(served, "/things/kettle", headers=TRACEPARENT | {"x-request-id": "r-1"})
    await fetch(served, "/session", headers={"baggage": "synthetic_request=true"})
    span, with_baggage = recorded.spans()
    assert (span.name, span.kind) == ("GET /things/{name}", SpanKind.SERVER)
    assert span.parent
    assert (f"{span.context.trace_id:032x}", f"{span.parent.span_id:016x}") == (TRACE_ID, PARENT_ID)
    assert dict(span.attributes or {}) == {
        "client.address": "127.0.0.1",
        "shop.request.id": "r-1",
        "http.request.method": "GET",
        "http.response.status_code": 200,
        "http.route": "/things/{name}",
        "url.path": "/things/kettle",
        "url.scheme": "https",
    }
    assert (with_baggage.attributes or {}).items() >= {"session.id": "5f3a", "synthetic_request": "true"}.items()


async def test_a_request_without_a_route_is_named_by_its_method(recorded: Recorded) -> None:
    await fetch(service(recorded.telemetry), "/nowhere", "BREW")
    assert [span.name for span in recorded.spans()] == ["_OTHER"]


async def test_requests_in_flight_are_a_metric() -> None:
    telemetry, metrics = measured()

    async def count(_request: Request) -> Response:
        return PlainTextResponse(str(metrics()["shop.server.active_requests",]))

    response = await fetch(service(telemetry), "/", app=Starlette(routes=[Route("/", count)]))
    assert (response.text, metrics()["shop.server.active_requests",]) == ("1", 0)


async def test_durations_are_recorded_by_method_route_and_status() -> None:
    served = service()
    for path in ("/things/kettle", "/things/pan", "/things", "/bug", "/down"):
        await fetch(served, path)
    names = ("http.route", "http.response.status_code", "error.type")
    counts = {
        tuple(str(dict(attributes).get(name)) for name in names): sum(found.counts)
        for attributes, found in served.telemetry.histogram(semconv.HTTP_SERVER_DURATION).series.items()
    }
    assert counts == {
        ("/things/{name}", "200", "None"): 2,
        ("None", "404", "None"): 1,
        ("/bug", "500", "RuntimeError"): 1,
        ("/down", "503", "503"): 1,
    }


async def test_a_stream_of_events_takes_until_its_first_event(recorded: Recorded) -> None:
    async def stream(_request: Request) -> Response:
        async def events() -> AsyncIterator[str]:
            yield f"{time.time_ns()}"

        return StreamingResponse(events(), media_type="text/event-stream")

    response = await fetch(service(recorded.telemetry), "/", app=Starlette(routes=[Route("/", stream)]))
    assert (recorded.spans()[0].end_time or 0) <= int(response.text)


async def test_a_request_is_one_log_line_with_its_trace_id(recorded: Recorded) -> None:
    with structlog.testing.capture_logs(processors=[chassis_logging._add_trace_ids]) as lines:
        await fetch(service(recorded.telemetry, trust_traces=True), "/things/kettle?q=secret", headers=TRACEPARENT)
    [line] = lines
    assert line.pop("milliseconds") >= 0
    del line["span_id"]
    assert line == {
        "event": "request",
        "log_level": "info",
        "method": "GET",
        "path": "/things/kettle",
        "status": 200,
        "trace_id": TRACE_ID,
    }


async def test_responses_are_not_cached_unless_they_say_so() -> None:
    responses = [await fetch(service(), path) for path in ("/things/kettle", "/cached")]
    assert [response.headers["cache-control"] for response in responses] == ["no-store", "max-age=3600"]
    assert responses[0].headers["x-content-type-options"] == "nosniff"
    assert responses[0].headers["content-security-policy"] == "default-src 'none'; frame-ancestors 'none'"
    assert responses[0].headers["referrer-policy"] == "same-origin"


async def test_an_unexpected_error_gets_the_applications_response_and_is_logged_as_all_lines_are_with_its_request(
    recorded: Recorded,
) -> None:
    headers = {"x-request-id": "r-1", "x-forwarded-for": "203.0.113.9"}
    with structlog.testing.capture_logs(processors=[structlog.contextvars.merge_contextvars]) as lines:
        response = await fetch(service(recorded.telemetry), "/bug", headers=headers)
        structlog.get_logger().info("afterwards")
    assert (response.status_code, response.text, response.headers["x-request-id"]) == (500, "sorry", "r-1")
    assert [(line["event"], line.get("shop.request.id"), line.get("client.address")) for line in lines] == [
        ("unexpected error", "r-1", "127.0.0.1"),
        ("request", "r-1", "127.0.0.1"),
        ("afterwards", None, None),
    ]
    [span] = recorded.spans()
    assert span.status.status_code is StatusCode.ERROR
    assert (span.attributes or {})["error.type"] == "RuntimeError"
    assert span.events == ()  # the text of an exception may contain secrets


async def test_an_error_in_the_middle_of_a_response_reaches_the_server() -> None:
    with pytest.raises(RuntimeError):
        await fetch(service(), "/stream")


@pytest.mark.parametrize(
    ("path", "body"), [("/healthz", '{"status":"ok"}'), ("/readyz", '{"status":"ok"}'), ("/things/mug", "mug")]
)
async def test_probes_and_unobserved_paths_are_neither_traced_nor_logged_nor_measured(
    recorded: Recorded, path: str, body: str
) -> None:
    served = service(recorded.telemetry)
    served.unobserved.append("/things/")
    with structlog.testing.capture_logs() as logs:
        response = await fetch(served, path)
    assert (response.text, response.headers["x-content-type-options"]) == (body, "nosniff")
    assert (recorded.spans(), logs, recorded.telemetry.histogram(semconv.HTTP_SERVER_DURATION).series) == ([], [], {})


async def test_a_probe_by_another_method_is_refused() -> None:
    response = await fetch(service(), "/readyz", "POST")
    assert (response.status_code, response.headers["allow"]) == (405, "GET, HEAD")


@pytest.mark.parametrize(
    "error", [errors.Unavailable("the store is down"), ValueError("a defect"), None], ids=["outage", "defect", "hang"]
)
async def test_readiness_follows_the_checks_and_liveness_does_not(
    error: Exception | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_server, "_READINESS_TIMEOUT_SECONDS", 0.05)
    broken = True

    async def check() -> None:
        if broken and error:
            raise error
        if broken:
            await asyncio.Event().wait()

    served = service()
    served.readiness_checks.append(check)
    response = await fetch(served, "/readyz")
    assert (response.status_code, response.json()) == (503, {"error": "Not ready"})
    assert (await fetch(served, "/healthz")).status_code == 200
    broken = False
    assert (await fetch(served, "/readyz")).status_code == 200


async def test_a_draining_service_serves_but_is_not_ready() -> None:
    served = service()
    served.is_draining = True
    statuses = [(await fetch(served, path)).status_code for path in ("/readyz", "/healthz", "/cached")]
    assert statuses == [503, 200, 200]


@pytest.mark.parametrize(
    ("received", "is_taken"),
    [("r-1_a.B", True), ("x" * 64, True), ("x" * 65, False), ("", False), ("a b", False), ("a\u00e9", False)],
)
async def test_a_well_formed_request_id_is_returned_and_any_other_replaced(received: str, is_taken: bool) -> None:
    response = await fetch(service(), "/things/kettle", headers=[(b"x-request-id", received.encode("latin-1"))])
    returned = response.headers["x-request-id"]
    assert (returned == received) is is_taken
    assert 0 < len(returned) <= 64
