import asyncio
from pathlib import Path

import httpx2
import pytest
from opentelemetry.trace import SpanKind
from sqlalchemy import text

from chassis.sql.engine import MeasuredPool, open_engine
from chassis.telemetry import semconv
from employee_api.users.passwords import PasswordHasher
from shop_cli.local.ports import reserved
from shop_kit.databases import execute
from shop_kit.employee_api import StartApi, on_each_database
from shop_kit.hostile import http_requests, send
from shop_kit.received_telemetry import receiving
from shop_kit.running_shop import running_process
from shop_kit.serving import Recorded
from shop_kit.waiting import wait_until

CARD = "4111111111111111"
TRACE_ID = "0af7651916cd43dd8448eb211c80319c"
TRACEPARENT = {"traceparent": f"00-{TRACE_ID}-b7ad6b7169203331-01"}


async def test_requests_and_exports_are_spans_named_by_routes(start_api: StartApi, recorded: Recorded) -> None:
    async with start_api(telemetry=recorded.telemetry) as api:
        await api.client.get("/api/export/users")
        await api.client.delete("/api/auth/users/cf828672-551f-4468-b46b-28bfc63de735", headers=TRACEPARENT)
    export, _, *_, request = recorded.spans()
    assert [span.name for span in recorded.spans()][:2] == ["export users", "GET /api/export/users"]
    assert export.kind is SpanKind.CLIENT
    assert request.name == "DELETE /api/auth/users/{id}"


@on_each_database
async def test_statements_are_client_spans_without_values(start_api: StartApi, recorded: Recorded) -> None:
    async with start_api(telemetry=recorded.telemetry) as api:
        new = {"name": "Ada", "email": "ada@example.com", "password": "top secret words"}
        for status in (201, 409):
            assert (await api.client.post("/api/auth/users", json=new)).status_code == status
        failed = {span.name: span for span in recorded.spans() if semconv.ERROR_TYPE in (span.attributes or {})}
        assert list(failed) == ["INSERT users"]
        error = (failed["INSERT users"].attributes or {})[semconv.ERROR_TYPE]
        assert error in {"UniqueViolation", "SQLITE_CONSTRAINT_UNIQUE"}
        exported = "".join(span.to_json() for span in recorded.spans())
        assert [value for value in (new["email"], new["password"]) if value in exported] == []
        recorded.exporter.clear()
        await api.client.get("/api/auth/users", headers=TRACEPARENT)
        system = api.engine.dialect.name
    statement, request = [span for span in recorded.spans() if span.kind is not SpanKind.INTERNAL]
    assert (statement.name, statement.kind) == ("SELECT users", SpanKind.CLIENT)
    assert statement.parent == request.context
    attributes = dict(statement.attributes or {})
    assert attributes.pop(semconv.DB_NAMESPACE)
    assert bool(attributes.pop(semconv.SERVER_ADDRESS, "")) is (system == "postgresql")
    attributes.pop(semconv.SERVER_PORT, None)
    summary = {"db.operation.name": "SELECT", "db.query.summary": "SELECT users"}
    assert attributes == {"db.system.name": system} | summary
    counted = recorded.telemetry.histogram(semconv.DB_CLIENT_DURATION).series
    assert {dict(key)[semconv.DB_OPERATION] for key in counted} >= {"SELECT", "INSERT"}
    assert recorded.telemetry.histogram(semconv.POOL_WAIT).series


async def test_the_use_of_the_pool_is_its_connections_by_state(start_api: StartApi) -> None:
    async with start_api() as api:
        pool = api.engine.pool
        assert isinstance(pool, MeasuredPool)
        async with api.engine.connect(), api.engine.connect():
            assert pool._use() == {"used": 2, "idle": 0}
        assert pool._use() == {"used": 0, "idle": 2}


async def test_a_statement_of_a_cancelled_request_ends_its_span(postgres_url: str, recorded: Recorded) -> None:
    engine = open_engine(postgres_url, recorded.telemetry)
    running = "SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND query LIKE 'SELECT pg_sleep%'"
    with recorded.telemetry.tracer.start_as_current_span("call"):
        async with engine.connect() as connection:
            statement = asyncio.create_task(connection.execute(text("SELECT pg_sleep(600)")))
            await wait_until(lambda: execute(postgres_url, running))
            statement.cancel()
            with pytest.raises(asyncio.CancelledError):
                await statement
        with recorded.telemetry.tracer.start_as_current_span("next"):
            pass
    await engine.dispose()
    spans = {span.name: span for span in recorded.spans()}
    assert (spans["SELECT"].attributes or {})[semconv.ERROR_TYPE] == "CancelledError"
    assert spans["next"].parent == spans["call"].context


async def test_a_wait_for_a_password_thread_is_a_span(recorded: Recorded) -> None:
    hasher = PasswordHasher(1, recorded.telemetry, memory_kib=1024, passes=8)
    with recorded.telemetry.tracer.start_as_current_span("call") as call:
        await asyncio.gather(*(hasher.hash("correct horse") for _ in range(3)))
    hasher.close()
    waits = [span for span in recorded.spans() if span.name == "password.wait"]
    assert 1 <= len(waits) <= 3
    assert all(span.parent == call.get_span_context() for span in waits)


async def test_requests_and_their_sql_are_exported_without_secrets(sqlite_url: str, tmp_path: Path) -> None:
    secret = "top secret words"
    with reserved(1) as [port]:
        async with receiving(port) as received:
            endpoint = {"OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{port}"}
            variables = {"DATABASE_URL": sqlite_url, "AUTH_MODE": "observe", **endpoint}
            async with (
                running_process("employee-api", tmp_path, **variables) as served,
                httpx2.AsyncClient(base_url=f"http://{served.address}", timeout=None) as client,
            ):
                new = {"name": "Ada", "email": "ada@x", "password": secret}
                await client.post("/api/auth/register", json=new)
                login = await client.post("/api/auth/login", json=new, headers=TRACEPARENT)
                for request in http_requests(CARD):
                    await send(served.port, request)
    output = served.log_path.read_bytes()
    sent = b"".join(message.SerializeToString() for message in received.messages) + output
    token = login.cookies["__Host-session"]
    assert [found for found in (secret, token, "$argon2id$", CARD) if found.encode() in sent] == []
    login_trace = next(span.trace_id for span in received.spans if span.name == "POST /api/auth/login")
    spans = [span for span in received.spans if span.trace_id == login_trace]
    assert "SELECT users" in {span.attributes.get(semconv.DB_QUERY_SUMMARY) for span in spans}
    assert [span.name for span in spans if span.kind == "SERVER"] == ["POST /api/auth/login"]
    names = {metric.name for _, metric in received.metrics}
    stores = {semconv.DB_CLIENT_DURATION, semconv.POOL_CONNECTIONS, semconv.POOL_MAX, semconv.POOL_PENDING}
    assert names >= {"http.server.request.duration", "shop.store.volume.usage", *(metric.name for metric in stores)}
    assert f'"trace_id":"{login_trace}"'.encode() in output
