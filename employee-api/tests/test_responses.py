"""HEAD, OPTIONS, Location, compression, entity tags and conditional reads."""

import gzip
import zlib

import httpx2
import pytest
from starlette.requests import Request
from starlette.types import Message, Receive, Scope, Send

from employee_api.errors import PreconditionFailed
from employee_api.exports.streaming import CsvExporter
from employee_api.http.compression import Compression
from employee_api.http.etags import etag, is_unchanged, require_match
from employee_api.http.operations import Call
from employee_api.schemas import Error
from shop_kit.employee_api import LOCAL, PASSWORD, Api, StartApi, serving


async def raw(client: httpx2.AsyncClient, path: str, accept_encoding: str) -> tuple[httpx2.Headers, bytes]:
    """Return the headers and the body as it was sent."""
    async with client.stream("GET", path, headers={"accept-encoding": accept_encoding}) as response:
        return response.headers, b"".join([chunk async for chunk in response.aiter_raw()])


@pytest.mark.parametrize("accept_encoding", ["identity", "gzip"])
async def test_head_has_the_headers_of_get_and_no_body(start_api_on_sqlite: StartApi, accept_encoding: str) -> None:
    varying, headers = {"x-request-id", "date", "transfer-encoding"}, {"accept-encoding": accept_encoding}
    async with serving(start_api_on_sqlite(**LOCAL)) as (api, address), httpx2.AsyncClient(base_url=address) as client:
        for _ in range(5):
            await api.add_task("x" * 100)
        for path in ("/api/tasks", "/api/export/tasks", "/docs", "/openapi.json", "/nowhere", "/api/tasks/1"):
            get, head = [await client.request(method, path, headers=headers) for method in ("GET", "HEAD")]
            assert (head.status_code, head.content) == (get.status_code, b"")
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
    assert (await api_on_sqlite.client.options("/nowhere")).status_code == 404


async def test_what_is_new_can_be_read_at_its_location(api: Api) -> None:
    task = await api.client.post("/api/tasks", json={"title": "Water"})
    comment = await api.client.post(f"{task.headers['location']}/comments", json={"body": "Done?"})
    for created in (task, comment):
        assert (await api.client.get(created.headers["location"])).json() == created.json()
    for number, path in enumerate(("/api/auth/users", "/api/auth/register")):
        user = await api.client.post(path, json={"name": "Ada", "email": f"{number}@x", "password": PASSWORD})
        assert user.headers["location"] == f"/api/auth/users/{user.json()['id']}"


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
async def test_accept_encoding_chooses_compression(
    api_on_sqlite: Api, accept_encoding: str, encoding: str | None
) -> None:
    for path in ("/openapi.json", "/api/export/tasks"):
        headers, body = await raw(api_on_sqlite.client, path, accept_encoding)
        _, plain = await raw(api_on_sqlite.client, path, "identity")
        assert headers.get("content-encoding") == encoding
        assert headers["vary"] == "Accept-Encoding"
        assert (gzip.decompress(body) if encoding else body) == plain
        assert headers.get("content-length", str(len(body))) == str(len(body))


async def test_large_responses_without_an_entity_tag_are_compressed_whole(api: Api) -> None:
    for number in range(100):
        task = await api.add_task("x" * 500, description=str(number) + "x" * 1000)
    for path in ("/nowhere", f"/api/tasks/{task['id']}"):
        headers, _ = await raw(api.client, path, "gzip")
        assert "content-encoding" not in headers
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


OLD, NEW = Error(error="old"), Error(error="new")


def request_with(*headers: tuple[str, str]) -> Request:
    return Request({"type": "http", "headers": [(name.encode(), value.encode()) for name, value in headers]})


def test_a_tag_depends_on_the_representation_alone() -> None:
    assert etag(OLD) == etag(Error(error="old")) != etag(NEW)


@pytest.mark.parametrize("if_match", [None, "*", " * ", etag(NEW), f'"x", {etag(NEW)}', f'"a,b",{etag(NEW)}'])
def test_a_change_is_allowed_without_if_match_or_with_the_current_tag(if_match: str | None) -> None:
    require_match(if_match, NEW)


@pytest.mark.parametrize("if_match", ["", etag(OLD), f"W/{etag(NEW)}", etag(NEW).strip('"'), '"*"', "garbage"])
def test_a_change_with_any_other_if_match_is_refused(if_match: str) -> None:
    with pytest.raises(PreconditionFailed):
        require_match(if_match, NEW)


@pytest.mark.parametrize(
    ("if_none_match", "unchanged"),
    [(None, False), ("*", True), (etag(NEW), True), (f"W/{etag(NEW)}", True), (etag(OLD), False), ("", False)],
)
def test_a_representation_is_unchanged_if_its_tag_is_listed_weak_or_not(
    if_none_match: str | None, unchanged: bool
) -> None:
    assert is_unchanged(if_none_match, etag(NEW)) is unchanged


def test_if_match_may_be_spread_over_several_lines() -> None:
    call = Call(request_with(("if-match", etag(OLD)), ("if-match", etag(NEW))), None, None)
    require_match(call.if_match, NEW)
    assert Call(request_with(), None, None).if_match is None


async def test_an_unchanged_task_is_a_304_without_a_body(api_on_sqlite: Api) -> None:
    created = await api_on_sqlite.client.post(
        "/api/tasks", json={"title": "Water the plants", "due_date": "2026-12-24"}
    )
    path, tag = created.headers["location"], created.headers["etag"]
    for method in ("GET", "HEAD"):
        unchanged = await api_on_sqlite.client.request(method, path, headers={"if-none-match": tag})
        assert (unchanged.status_code, unchanged.content, unchanged.headers["etag"]) == (304, b"", tag)
        assert "content-length" not in unchanged.headers
    other = (await api_on_sqlite.client.patch(path, json={"title": "Other"})).headers["etag"]
    changed = await api_on_sqlite.client.get(path, headers={"if-none-match": tag})
    assert (changed.status_code, changed.headers["etag"]) == (200, other)
    assert tag != other
    listed = await api_on_sqlite.client.get("/api/tasks", headers={"if-none-match": "*"})
    assert listed.status_code == 200  # it has no tag
