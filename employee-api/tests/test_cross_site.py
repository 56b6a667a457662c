"""Pages of other origins can't use the API from a browser unless the settings allow them, under any host name."""

import itertools
from collections.abc import Mapping
from typing import Any

import pytest

from chassis.settings import load
from chassis.telemetry import semconv
from chassis.telemetry.instruments import Telemetry
from employee_api.access import SESSION_COOKIE
from employee_api.settings import EmployeeApiSettings
from shop_kit.employee_accounts import MODES, status_and_body
from shop_kit.employee_api import PASSWORD, Api, StartApi

APP = "https://app.example.com"
NEW_USER = {"name": "Ada", "email": "ada@x", "password": PASSWORD}
REFUSED = (403, {"error": "Requests from other sites are not allowed"})
NOT_JSON = (415, {"error": "Content-Type must be application/json"})
UNKNOWN_HOST = (421, {"error": "This host is not served here"})
INVALID_HOST = (400, {"error": "Invalid Host header"})
# The client's requests are for https://api.test.
FOREIGN: list[Mapping[str, str]] = [
    {"origin": "https://evil.example"},
    {"origin": "null"},
    {"origin": "https://api.test.evil.example"},
    {"origin": "https://api.test:8443"},
    {"origin": "https://api.test@evil.example"},
    {"origin": "http://[::"},
    {"origin": ""},
    {"sec-fetch-site": "cross-site"},
    {"sec-fetch-site": "same-site"},
    {"sec-fetch-site": "cross-site", "origin": "https://api.test"},
    {"sec-fetch-site": "unknown"},
]
OWN: list[Mapping[str, str]] = [
    {},
    {"origin": "https://api.test"},
    {"origin": "http://api.test"},
    {"sec-fetch-site": "none"},
    {"sec-fetch-site": "same-origin", "origin": "https://api.test"},
    {"sec-fetch-site": "same-origin", "origin": "https://behind-a-proxy.test"},
]


async def register(api: Api, headers: Mapping[str, str]) -> tuple[int, Any]:
    return status_and_body(await api.client.post("/api/auth/register", json=NEW_USER, headers=headers))


async def number_of_users(api: Api) -> int:
    async with api.engine.connect() as connection:
        count: int = (await connection.exec_driver_sql("SELECT count(*) FROM users")).scalar_one()
    return count


@pytest.mark.parametrize("headers", [*FOREIGN, *OWN], ids=str)
@pytest.mark.parametrize("mode", MODES)
async def test_only_pages_of_the_same_origin_and_programs_may_change_something(
    start_api_on_sqlite: StartApi, mode: str, headers: Mapping[str, str]
) -> None:
    async with start_api_on_sqlite(auth_mode=mode) as api:
        found = await register(api, headers)
        assert found == REFUSED if headers in FOREIGN else found[0] == 201
        assert await number_of_users(api) == (headers in OWN)


@pytest.mark.parametrize("mode", MODES)
async def test_every_change_is_refused_before_the_session_is_looked_at(
    start_api_on_sqlite: StartApi, mode: str
) -> None:
    async with start_api_on_sqlite(auth_mode=mode) as api:
        described = (await api.client.get("/openapi.json")).json()["paths"]
        for path, methods in described.items():
            for method in set(methods) - {"get"}:
                response = await api.client.request(method, path, headers={"sec-fetch-site": "cross-site"})
                assert status_and_body(response) == REFUSED, (method, path)


async def test_a_session_of_a_sibling_page_changes_nothing(start_api_on_sqlite: StartApi) -> None:
    async with start_api_on_sqlite() as api:
        await register(api, {})
    async with start_api_on_sqlite(auth_mode="enforce") as api:
        response = await api.client.post("/api/auth/login", json=NEW_USER)
        # Browsers send the cookie for pages of the same site, despite SameSite=Strict.
        cookie = {"cookie": f"{SESSION_COOKIE}={response.cookies[SESSION_COOKIE]}"}
        task = {"title": "Attack"}
        sibling = cookie | {"sec-fetch-site": "same-site", "origin": "https://blog.api.test"}
        assert status_and_body(await api.client.post("/api/tasks", json=task, headers=sibling)) == REFUSED
        assert (await api.client.get("/api/tasks", headers=cookie)).json()["items"] == []


@pytest.mark.parametrize("headers", FOREIGN, ids=str)
async def test_reading_is_left_to_the_browser_to_refuse(api_on_sqlite: Api, headers: Mapping[str, str]) -> None:
    response = await api_on_sqlite.client.get("/api/auth/users", headers=headers)
    assert response.status_code == 200
    assert "access-control-allow-origin" not in response.headers


async def test_the_check_can_be_switched_off_only_without_authorization(start_api_on_sqlite: StartApi) -> None:
    for mode, status in (("off", 201), ("observe", 409)):
        async with start_api_on_sqlite(auth_mode=mode, allow_cross_site=True) as api:
            assert (await register(api, FOREIGN[0]))[0] == status
    async with start_api_on_sqlite(auth_mode="enforce", allow_cross_site=True) as api:
        assert await register(api, FOREIGN[0]) == REFUSED


async def test_observe_mode_counts_what_it_would_refuse(start_api_on_sqlite: StartApi) -> None:
    telemetry = Telemetry()
    async with start_api_on_sqlite(auth_mode="observe", telemetry=telemetry) as api:
        assert await register(api, {"sec-fetch-site": "cross-site"}) == REFUSED
        assert (await register(api, {"content-type": "text/plain"}))[0] == 201
    values = telemetry.counter(semconv.EMPLOYEE_API_REFUSALS).values
    reasons = {dict(labels)[semconv.REFUSAL_REASON]: dict(labels)[semconv.REFUSED_OPERATION] for labels in values}
    assert reasons == {"CROSS_SITE_REQUEST": "register", "JSON_REQUIRED": "register"}


JSON = ["application/json", "Application/JSON; charset=utf-8", "application/merge-patch+json"]


@pytest.mark.parametrize(
    "content_type", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", "", *JSON]
)
async def test_a_body_must_be_declared_as_json_when_enforced(start_api_on_sqlite: StartApi, content_type: str) -> None:
    async with start_api_on_sqlite(auth_mode="enforce") as api:
        found = await register(api, {"content-type": content_type})
        assert found[0] == 201 if content_type in JSON else found == NOT_JSON
        assert await number_of_users(api) == (content_type in JSON)


@pytest.mark.parametrize("mode", MODES)
async def test_other_hosts_are_refused_in_every_mode(start_api_on_sqlite: StartApi, mode: str) -> None:
    async with start_api_on_sqlite(auth_mode=mode, allowed_hosts="api.test,*.example.com") as api:
        for path in ("/api/tasks", "/docs", "/nowhere"):
            assert status_and_body(await api.client.get(path, headers={"host": "evil.example"})) == UNKNOWN_HOST


async def test_a_malformed_host_is_refused_and_probes_are_answered_for_any(start_api_on_sqlite: StartApi) -> None:
    async with start_api_on_sqlite(allowed_hosts="api.test") as api:
        assert status_and_body(await api.client.get("/api/tasks", headers={"host": "a b"})) == INVALID_HOST
        for path in ("/healthz", "/readyz"):
            assert (await api.client.get(path, headers={"host": "10.0.0.1:8000"})).status_code == 200
        described = (await api.client.get("/openapi.json")).json()["paths"]
        assert "421" in described["/api/tasks"]["get"]["responses"]
        assert "421" not in described["/healthz"]["get"]["responses"]


PREFLIGHT = {"access-control-request-method": "PATCH", "access-control-request-headers": "content-type,if-match"}


async def test_allowed_origins_may_send_any_request(start_api_on_sqlite: StartApi) -> None:
    async with start_api_on_sqlite(auth_mode="enforce", allowed_origins=f"{APP.upper()}:443") as api:
        preflight = await api.client.options("/api/tasks/1", headers=PREFLIGHT | {"origin": APP})
        assert preflight.status_code == 200
        assert preflight.headers["access-control-allow-origin"] == APP
        assert "If-Match" in preflight.headers["access-control-allow-headers"]
        assert "PATCH" in preflight.headers["access-control-allow-methods"]
        headers = {"origin": APP, "sec-fetch-site": "cross-site"}
        response = await api.client.post("/api/auth/register", json=NEW_USER, headers=headers)
        assert response.status_code == 201
        assert response.headers["access-control-allow-origin"] == APP
        assert response.headers["access-control-allow-credentials"] == "true"
        assert "X-Request-ID" in response.headers["access-control-expose-headers"]
        assert response.headers["vary"] == "Origin"


async def test_allowed_origins_can_read_errors(start_api_on_sqlite: StartApi, monkeypatch: pytest.MonkeyPatch) -> None:
    async def fail(_: Any) -> None:
        raise RuntimeError

    monkeypatch.setattr("employee_api.users.repository.UserRepository.list_all", fail)
    for mode, status in (("enforce", 401), ("off", 500)):
        async with start_api_on_sqlite(auth_mode=mode, allowed_origins=APP) as api:
            response = await api.client.get("/api/auth/users", headers={"origin": APP})
        assert (response.status_code, response.headers["access-control-allow-origin"]) == (status, APP)


@pytest.mark.parametrize("origin", ["https://evil.example", "http://app.example.com", f"{APP}.evil.example", "null"])
async def test_other_origins_are_told_nothing(start_api_on_sqlite: StartApi, origin: str) -> None:
    async with start_api_on_sqlite(allowed_origins=APP) as api:
        assert await register(api, {"origin": origin}) == REFUSED
        preflight = await api.client.options("/api/tasks/1", headers=PREFLIGHT | {"origin": origin})
        assert status_and_body(preflight) == (400, {"error": "Disallowed CORS origin"})
        read = await api.client.get("/api/tasks", headers={"origin": origin})
        assert read.headers["vary"] == "Origin"
        for response in (preflight, read):
            assert "access-control-allow-origin" not in response.headers


@pytest.mark.parametrize("method", ["OPTIONS", "GET"])
async def test_without_the_setting_no_response_allows_an_origin(api_on_sqlite: Api, method: str) -> None:
    response = await api_on_sqlite.client.request(method, "/api/tasks", headers=PREFLIGHT | {"origin": APP})
    assert not [name for name in response.headers if name.startswith("access-control-allow-")]


DURATIONS = ("SESSION_IDLE_SECONDS", "SESSION_ABSOLUTE_SECONDS", "FAILED_LOGINS_WINDOW_SECONDS")


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        *itertools.product(DURATIONS, ("0", "inf", "1e12", "8h")),
        ("ALLOWED_HOSTS", "https://api.test"),
        ("ALLOWED_HOSTS", "api.test:8000"),
        ("ALLOWED_HOSTS", "*"),
        ("ALLOWED_HOSTS", "api.*.test"),
        ("ALLOWED_ORIGINS", "*"),
        ("ALLOWED_ORIGINS", "null"),
        ("ALLOWED_ORIGINS", "app.example.com"),
        ("ALLOWED_ORIGINS", "https://*.example.com"),
        ("ALLOWED_ORIGINS", "https://app.example.com/"),
    ],
)
def test_an_invalid_setting_ends_the_start(variable: str, value: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        load(EmployeeApiSettings, {variable: value})
    [line] = capsys.readouterr().err.splitlines()
    assert line.startswith(f"{variable}: ")
