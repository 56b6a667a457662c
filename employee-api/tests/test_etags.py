"""Entity tags: unit tests of their comparison, and conditional reads."""

import pytest
from starlette.requests import Request

from employee_api.errors import PreconditionFailed
from employee_api.http.etags import etag, is_unchanged, require_match
from employee_api.http.operations import Call
from employee_api.schemas import Error
from shop_lab.world.employee_api import Api

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
    path = f"/api/tasks/{(await api_on_sqlite.add_task())['id']}"
    tag = (await api_on_sqlite.client.get(path)).headers["etag"]
    for method in ("GET", "HEAD"):
        unchanged = await api_on_sqlite.client.request(method, path, headers={"if-none-match": tag})
        assert (unchanged.status_code, unchanged.content, unchanged.headers["etag"]) == (304, b"", tag)
        assert "content-length" not in unchanged.headers
    await api_on_sqlite.client.patch(path, json={"title": "Other"})
    changed = await api_on_sqlite.client.get(path, headers={"if-none-match": tag})
    assert (changed.status_code, changed.headers["etag"] != tag) == (200, True)


async def test_a_list_without_a_tag_is_never_a_304(api_on_sqlite: Api) -> None:
    response = await api_on_sqlite.client.get("/api/tasks", headers={"if-none-match": "*"})
    assert response.status_code == 200
