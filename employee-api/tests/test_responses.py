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
from shop_kit.employee_api import LOCAL, Api, StartApi, serving


async def raw(client: httpx2.AsyncClient, path: str, accept_encoding: str) -> tuple[httpx2.Headers, bytes]:
    """Return the headers and the body as it was sent."""
    async with client.stream("GET", path, headers={"accept-encoding": accept_encoding}) as response:
        return response.headers, b"".join([chunk async for chunk in response.aiter_raw()])


async def test_head_has_the_headers_of_get_and_no_body(start_api: StartApi) -> None:
    varying = {"x-request-id", "date", "transfer-encoding"}
    paths = ("/api/tasks", "/api/export/tasks", "/docs", "/openapi.json", "/nowhere", "/api/tasks/1")
    async with (
        serving(start_api(**LOCAL)) as (api, address),
        httpx2.AsyncClient(base_url=address, timeout=None) as client,
    ):
        for _ in range(5):
            await api.add_task("x" * 100)
        for path, encoding in [(path, encoding) for path in paths for encoding in ("identity", "gzip")]:
            accepted = {"accept-encoding": encoding}
            get, head = [await client.request(method, path, headers=accepted) for method in ("GET", "HEAD")]
            assert (head.status_code, head.content) == (get.status_code, b"")
            assert {name: value for name, value in head.headers.items() if name not in varying} == {
                name: value for name, value in get.headers.items() if name not in varying
            }


async def test_head_of_an_export_runs_no_query(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(CsvExporter, "stream")
    assert (await api.client.head("/api/export/tasks")).status_code == 200


async def test_options_lists_the_methods_of_a_path(api: Api) -> None:
    for path, methods in {
        "/api/tasks": "GET, HEAD, OPTIONS, POST",
        "/api/auth/login": "OPTIONS, POST",
        "/openapi.json": "GET, HEAD, OPTIONS",
    }.items():
        response = await api.client.options(path)
        assert (response.status_code, response.headers["allow"], response.content) == (204, methods, b"")
        refused = await api.client.request("TRACE", path)
        assert (refused.status_code, refused.headers["allow"]) == (405, methods)
    assert (await api.client.options("/nowhere")).status_code == 404


ACCEPTED_ENCODINGS = {"GZIP": True, "*": True, "gzip;q=0": False, "gzip;q=0, *": False, "identity, gzip;q=0.5": False}


async def test_accept_encoding_chooses_compression(api: Api) -> None:
    for accepted, is_compressed in ACCEPTED_ENCODINGS.items():
        for path in ("/openapi.json", "/api/export/tasks"):
            headers, body = await raw(api.client, path, accepted)
            assert (accepted, headers.get("content-encoding")) == (accepted, "gzip" if is_compressed else None)
            assert headers["vary"] == "Accept-Encoding"
            plain = (await raw(api.client, path, "identity"))[1]
            assert (gzip.decompress(body) if is_compressed else body) == plain
            assert headers.get("content-length", str(len(body))) == str(len(body))


async def test_large_responses_without_an_entity_tag_are_compressed_whole(api: Api) -> None:
    for number in range(30):
        task = await api.add_task("x" * 500, description=str(number) + "x" * 1000)
    for path in ("/nowhere", f"/api/tasks/{task['id']}"):
        headers, _ = await raw(api.client, path, "gzip")
        assert "content-encoding" not in headers
    headers, body = await raw(api.client, "/api/tasks?limit=100", "gzip")
    assert len(body) == int(headers["content-length"]) < 10_000
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


OLD, NEW = etag(Error(error="old")), etag(Error(error="new"))


def test_a_change_is_allowed_without_if_match_or_with_the_current_strong_tag() -> None:
    assert NEW != OLD == etag(Error(error="old"))
    for if_match in (None, "*", " * ", NEW, f'"x", {NEW}', f'"a,b",{NEW}'):
        require_match(if_match, Error(error="new"))
    for if_match in ("", OLD, f"W/{NEW}", NEW.strip('"'), '"*"', "garbage"):
        with pytest.raises(PreconditionFailed):
            require_match(if_match, Error(error="new"))


def test_a_representation_is_unchanged_if_its_tag_is_listed_weak_or_not() -> None:
    assert all(is_unchanged(if_none_match, NEW) for if_none_match in ("*", NEW, f"W/{NEW}"))
    assert not any(is_unchanged(if_none_match, NEW) for if_none_match in (None, OLD, ""))


def test_if_match_may_be_spread_over_several_lines() -> None:
    lines = [(b"if-match", tag.encode()) for tag in (OLD, NEW)]
    require_match(Call(Request({"type": "http", "headers": lines}), None, None).if_match, Error(error="new"))
    assert Call(Request({"type": "http", "headers": []}), None, None).if_match is None


async def test_what_is_new_is_at_its_location_and_a_304_without_a_body_while_unchanged(api: Api) -> None:
    created = await api.client.post("/api/tasks", json={"title": "Water the plants", "due_date": "2026-12-24"})
    path, tag = created.headers["location"], created.headers["etag"]
    comment = await api.client.post(f"{path}/comments", json={"body": "Done?"})
    for new in (created, comment):
        assert (await api.client.get(new.headers["location"])).json() == new.json()
    for method in ("GET", "HEAD"):
        unchanged = await api.client.request(method, path, headers={"if-none-match": tag})
        assert (unchanged.status_code, unchanged.content, unchanged.headers["etag"]) == (304, b"", tag)
        assert "content-length" not in unchanged.headers
    other = (await api.client.patch(path, json={"title": "Other"})).headers["etag"]
    changed = await api.client.get(path, headers={"if-none-match": tag})
    assert (changed.status_code, changed.headers["etag"]) == (200, other)
    assert tag != other
    assert (await api.client.get("/api/tasks", headers={"if-none-match": "*"})).status_code == 200  # it has no tag
