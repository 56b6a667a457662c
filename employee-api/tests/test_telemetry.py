import asyncio
import json
import os
import sys
from pathlib import Path

import httpx2
import structlog

from chassis import logging as chassis_logging
from chassis import semconv
from chassis.telemetry import Telemetry
from shop_cli.local.otlp_receiver import receiving
from shop_cli.local.ports import reserved
from shop_testkit.employee_api import StartApi
from shop_testkit.serving import Recorded

TRACE_ID, PARENT_ID = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
TRACEPARENT = {"traceparent": f"00-{TRACE_ID}-{PARENT_ID}-01"}


async def test_a_request_is_a_span_in_the_clients_trace_named_by_its_route(
    start_api_on_sqlite: StartApi, recorded: Recorded
) -> None:
    async with start_api_on_sqlite(telemetry=recorded.telemetry) as api:
        await api.client.delete("/api/auth/users/cf828672-551f-4468-b46b-28bfc63de735", headers=TRACEPARENT)
    [span] = recorded.spans()
    assert span.name == "DELETE /api/auth/users/{id}"
    assert f"{span.context.trace_id:032x}" == TRACE_ID
    assert span.parent
    assert f"{span.parent.span_id:016x}" == PARENT_ID
    assert span.attributes
    assert span.attributes["http.route"] == "/api/auth/users/{id}"


async def test_an_export_is_one_span_and_not_one_for_each_chunk(
    start_api_on_sqlite: StartApi, recorded: Recorded
) -> None:
    async with start_api_on_sqlite(telemetry=recorded.telemetry) as api:
        await api.client.get("/api/export/users")
    assert [span.name for span in recorded.spans()] == ["export users", "GET /api/export/users"]


async def test_probes_are_not_traced(start_api_on_sqlite: StartApi, recorded: Recorded) -> None:
    async with start_api_on_sqlite(telemetry=recorded.telemetry) as api:
        for path in ("/healthz", "/readyz"):
            await api.client.get(path)
    assert recorded.spans() == []


async def test_request_durations_are_recorded_by_status(start_api_on_sqlite: StartApi) -> None:
    telemetry = Telemetry()
    async with start_api_on_sqlite(telemetry=telemetry) as api:
        await api.client.get("/api/auth/users")
        await api.client.post("/api/auth/login", json={})
    recorded = [dict(attributes) for attributes in telemetry.histogram(semconv.HTTP_SERVER_DURATION).series]
    statuses = {(labels["http.route"], labels["http.response.status_code"]) for labels in recorded}
    assert statuses == {("/api/auth/users", 200), ("/api/auth/login", 400)}


async def test_each_request_is_logged_with_its_trace_id(start_api_on_sqlite: StartApi, recorded: Recorded) -> None:
    with structlog.testing.capture_logs(processors=[chassis_logging._add_trace_ids]) as lines:
        async with start_api_on_sqlite(telemetry=recorded.telemetry) as api:
            await api.client.get("/api/auth/users", headers=TRACEPARENT)
    [line] = [line for line in lines if line["event"] == "request"]
    assert (line["method"], line["path"], line["status"]) == ("GET", "/api/auth/users", 200)
    assert line["trace_id"] == TRACE_ID


async def test_requests_and_their_sql_are_exported_without_secrets(tmp_path: Path) -> None:
    with reserved(1) as [port]:
        async with receiving(port) as received:
            environment = {
                "PATH": os.environ["PATH"],
                "HOST": "127.0.0.1",
                "PORT": "0",
                "DRAIN_SECONDS": "0",
                "AUTH_MODE": "observe",
                "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{port}",
            }
            command = (sys.executable, "-m", "employee_api")
            process = await asyncio.create_subprocess_exec(
                *command, cwd=tmp_path, env=environment, stdout=asyncio.subprocess.PIPE
            )
            assert process.stdout
            while (line := json.loads(await process.stdout.readline()))["event"] != "serving":
                pass
            async with httpx2.AsyncClient(base_url=f"http://127.0.0.1:{line['port']}") as client:
                new = {"name": "Ada", "email": "ada@x", "password": "topsecret"}
                await client.post("/api/auth/register", json=new)
                login = await client.post("/api/auth/login", json=new, headers=TRACEPARENT)
            process.terminate()
            output = await process.stdout.read()
            assert await process.wait() == 0
    sent = b"".join(message.SerializeToString() for message in received.messages) + output
    token = login.cookies["__Host-session"]
    assert not [secret for secret in ("topsecret", token, "$argon2id$") if secret.encode() in sent]
    spans = [span for span in received.spans if span.trace_id == TRACE_ID]
    assert any("FROM users" in str(span.attributes.get("db.query.text")) for span in spans)
    assert [span.name for span in spans if span.kind == "SERVER"] == ["POST /api/auth/login"]
    names = {metric.name for _, metric in received.metrics}
    assert names >= {"http.server.request.duration", "shop.store.volume.usage"}
    assert f'"trace_id":"{TRACE_ID}"'.encode() in output
