"""HEAD, OPTIONS, Location and compression."""

import gzip
import zlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import httpx2
import pytest
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from chassis.http.server import serving
from employee_api.exports.streaming import CsvExporter
from employee_api.http.compression import Compression
from shop_lab.world.employee_api import PASSWORD, Api

NEW = {"name": "Ada", "email": "ada@x", "password": PASSWORD}


@asynccontextmanager
async def real_client(api: Api) -> AsyncIterator[httpx2.AsyncClient]:
    """Serve the API with the process's server, and yield a client."""

    @asynccontextmanager
    async def application() -> AsyncIterator[ASGIApp]:
        yield api.asgi

    settings = replace(api.service.settings, host="127.0.0.1", port=0, drain_seconds=0)
    api.service.settings = settings
    async with (
        serving(api.service, application()) as ports,
        httpx2.AsyncClient(base_url=f"http://127.0.0.1:{ports['port']}") as client,
    ):
        yield client


async def raw(client: httpx2.AsyncClient, path: str, accept_encoding: str) -> tuple[httpx2.Headers, bytes]:
    """Return the headers and the body as it was sent."""
    async with client.stream("GET", path, headers={"accept-encoding": accept_encoding}) as response:
        return response.headers, b"".join([chunk async for chunk in response.aiter_raw()])


@pytest.mark.parametrize(
    "path", ["/api/tasks", "/api/export/tasks", "/docs", "/openapi.json", "/nowhere", "/api/tasks/1"]
)
@pytest.mark.parametrize("accept_encoding", ["identity", "gzip"])
async def test_head_has_the_headers_of_get_and_no_body(api_on_sqlite: Api, path: str, accept_encoding: str) -> None:
    for _ in range(5):
        await api_on_sqlite.add_task("x" * 100)
    async with real_client(api_on_sqlite) as client:
        headers = {"accept-encoding": accept_encoding}
        get, head = [await client.request(method, path, headers=headers) for method in ("GET", "HEAD")]
    varying = {"x-request-id", "date", "transfer-encoding"}
    assert head.content == b""
    assert head.status_code == get.status_code
    assert {name: value for name, value in head.headers.items() if name not in varying} == {
        name: value for name, value in get.headers.items() if name not in varying
    }


async def test_head_of_an_export_runs_no_query(api_on_sqlite: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(CsvExporter, "stream")
    assert (await api_on_sqlite.client.head("/api/export/tasks")).status_code == 200


@pytest.mark.parametrize(
    ("path", "methods"),
    [
        ("/api/tasks", "GET, HEAD, OPTIONS, POST"),
        ("/api/auth/login", "OPTIONS, POST"),
        ("/openapi.json", "GET, HEAD, OPTIONS"),
    ],
)
async def test_options_lists_the_methods_of_a_path(api_on_sqlite: Api, path: str, methods: str) -> None:
    response = await api_on_sqlite.client.options(path)
    assert (response.status_code, response.headers["allow"], response.content) == (204, methods, b"")
    refused = await api_on_sqlite.client.request("TRACE", path)
    assert (refused.status_code, refused.headers["allow"]) == (405, methods)


async def test_options_of_an_unknown_path_is_a_404(api_on_sqlite: Api) -> None:
    assert (await api_on_sqlite.client.options("/nowhere")).status_code == 404


@pytest.mark.parametrize("path", ["/api/auth/users", "/api/auth/register"])
async def test_a_new_user_has_a_location(api: Api, path: str) -> None:
    created = await api.client.post(path, json=NEW)
    assert created.headers["location"] == f"/api/auth/users/{created.json()['id']}"


async def test_a_new_task_and_a_new_comment_can_be_read_at_their_location(api: Api) -> None:
    task = await api.client.post("/api/tasks", json={"title": "Water"})
    assert (await api.client.get(task.headers["location"])).json() == task.json()
    comment = await api.client.post(f"{task.headers['location']}/comments", json={"body": "Done?"})
    assert (await api.client.get(comment.headers["location"])).json() == comment.json()


@pytest.mark.parametrize(
    ("accept_encoding", "encoding"),
    [
        ("gzip", "gzip"),
        ("GZIP", "gzip"),
        ("deflate, gzip;q=0.5", "gzip"),
        ("*", "gzip"),
        ("gzip;q=0", None),
        ("gzip;q=0, *", None),
        ("*;q=0", None),
        ("identity, gzip;q=0.5", None),
        ("br", None),
        ("", None),
    ],
)
@pytest.mark.parametrize("path", ["/openapi.json", "/api/export/tasks"])
async def test_accept_encoding_chooses_compression(
    api_on_sqlite: Api, path: str, accept_encoding: str, encoding: str | None
) -> None:
    headers, body = await raw(api_on_sqlite.client, path, accept_encoding)
    _, plain = await raw(api_on_sqlite.client, path, "identity")
    assert headers.get("content-encoding") == encoding
    assert headers["vary"] == "Accept-Encoding"
    assert (gzip.decompress(body) if encoding else body) == plain
    assert headers.get("content-length", str(len(body))) == str(len(body))


async def test_small_responses_and_those_with_an_entity_tag_are_not_compressed(api_on_sqlite: Api) -> None:
    task = await api_on_sqlite.add_task("Water", description="x" * 1000)
    for path in ("/nowhere", f"/api/tasks/{task['id']}"):
        headers, _ = await raw(api_on_sqlite.client, path, "gzip")
        assert "content-encoding" not in headers


async def test_large_responses_are_compressed_whole(api: Api) -> None:
    for number in range(100):
        await api.add_task("x" * 500, description=str(number))
    headers, body = await raw(api.client, "/api/tasks?limit=100", "gzip")
    assert len(body) == int(headers["content-length"]) < 20_000
    assert gzip.decompress(body) == (await raw(api.client, "/api/tasks?limit=100", "identity"))[1]


async def test_every_chunk_of_a_compressed_stream_can_be_read_at_once() -> None:
    decompressor = zlib.decompressobj(wbits=31)
    chunks, read = [b"head\r\n", b"x" * 100_000, b""], []

    async def stream(_scope: Scope, _receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/csv")]})
        for number, chunk in enumerate(chunks, 1):
            await send({"type": "http.response.body", "body": chunk, "more_body": number < len(chunks)})

    async def receive() -> Message:
        return {"type": "http.disconnect"}

    async def send(message: Message) -> None:
        if message["type"] == "http.response.body":
            read.append(decompressor.decompress(message["body"]))

    scope = {"type": "http", "method": "GET", "headers": [(b"accept-encoding", b"gzip")]}
    await Compression(stream)(scope, receive, send)
    assert read == chunks
    assert decompressor.eof
