"""Pages of other origins can't use the API from a browser unless the settings allow them, under any host name."""

from collections.abc import Mapping

import pytest

from chassis.settings import load
from employee_api.settings import EmployeeApiSettings
from shop_kit.employee_api import MODES, PASSWORD, StartApi, status_and_body

APP = "https://app.example.com"
REFUSED = (403, {"error": "Requests from other sites are not allowed"})
NOT_JSON = (415, {"error": "Content-Type must be application/json"})
PREFLIGHT = {"access-control-request-method": "PATCH", "access-control-request-headers": "content-type,if-match"}
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


@pytest.mark.parametrize("mode", MODES)
async def test_only_pages_of_the_same_origin_and_programs_may_change_something(start_api: StartApi, mode: str) -> None:
    async with start_api(auth_mode=mode) as api:
        for headers in FOREIGN:
            assert (headers, await api.register(headers=headers)) == (headers, REFUSED)
            for method in ("GET", "OPTIONS"):  # which is left to the browser to refuse
                read = await api.client.request(method, "/openapi.json", headers=PREFLIGHT | dict(headers))
                assert [name for name in read.headers if name.startswith("access-control-allow-")] == []
                assert read.is_success
        assert await api.execute("SELECT * FROM users") == []
        for number, headers in enumerate(OWN):
            assert (headers, (await api.register(f"{number}@x", headers))[0]) == (headers, 201)


@pytest.mark.parametrize("mode", MODES)
async def test_every_change_is_refused_before_the_session_is_looked_at(start_api: StartApi, mode: str) -> None:
    async with start_api(auth_mode=mode) as api:
        for method, path, _ in await api.operations():
            if method != "GET":
                refused = await api.answer(f"{method} {path}", headers={"sec-fetch-site": "cross-site"})
                assert refused == REFUSED, (method, path)


async def test_the_check_can_be_switched_off_only_without_authorization(start_api: StartApi) -> None:
    for mode, status in (("off", 201), ("observe", 409), ("enforce", 403)):
        async with start_api(auth_mode=mode, allow_cross_site=True) as api:
            assert (await api.register(headers=FOREIGN[0]))[0] == status


async def test_a_body_must_be_declared_as_json_when_enforced(start_api: StartApi) -> None:
    async with start_api(auth_mode="enforce") as api:
        for content_type in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data", ""):
            assert await api.register(headers={"content-type": content_type}) == NOT_JSON
        for content_type in ("application/json", "Application/JSON; charset=utf-8", "application/merge-patch+json"):
            assert (await api.register(f"{content_type[:19]}@x", {"content-type": content_type}))[0] == 201


async def test_a_request_for_another_host_is_refused_where_hosts_are_set(start_api: StartApi) -> None:
    async with start_api(allowed_hosts="api.test,*.example.com") as api:
        refused = await api.answer("GET /api/tasks", headers={"host": "evil.example"})
        assert refused == (421, {"error": "This host is not served here"})
        described = {path for _, path, operation in await api.operations() if "421" in operation["responses"]}
        assert "/api/tasks" in described
        assert "/healthz" not in described


async def test_allowed_origins_may_do_all_and_read_errors(start_api: StartApi, monkeypatch: pytest.MonkeyPatch) -> None:
    async with start_api(auth_mode="enforce", allowed_origins=f"{APP.upper()}:443") as api:
        preflight = await api.client.options("/api/tasks/1", headers=PREFLIGHT | {"origin": APP})
        assert preflight.status_code == 200
        assert "If-Match" in preflight.headers["access-control-allow-headers"]
        assert {"PATCH", "DELETE"} <= set(preflight.headers["access-control-allow-methods"].split(", "))
        api.client.headers.update({"origin": APP, "sec-fetch-site": "cross-site"})
        new = {"name": "Ada", "email": "ada@x", "password": PASSWORD}
        response = await api.client.post("/api/auth/register", json=new)
        assert response.headers["access-control-allow-credentials"] == "true"
        assert "X-Request-ID" in response.headers["access-control-expose-headers"]
        assert response.headers["vary"] == "Origin"
        monkeypatch.delattr("employee_api.users.registration.RegistrationHandlers._check_open")
        unexpected = await api.client.post("/api/auth/register", json=new)
        unauthorized = await api.client.get("/api/tasks")
        assert [found.status_code for found in (response, unexpected, unauthorized)] == [201, 500, 401]
        for readable in (preflight, response, unexpected, unauthorized):
            assert readable.headers["access-control-allow-origin"] == APP


async def test_other_origins_are_allowed_nothing(start_api: StartApi) -> None:
    async with start_api(allowed_origins=APP) as api:
        for origin in ("https://evil.example", "http://app.example.com", f"{APP}.evil.example", "null"):
            assert await api.register(headers={"origin": origin}) == REFUSED
            preflight = await api.client.options("/api/tasks/1", headers=PREFLIGHT | {"origin": origin})
            assert status_and_body(preflight) == (400, {"error": "Disallowed CORS origin"})
            read = await api.client.get("/api/tasks", headers={"origin": origin})
            assert read.headers["vary"] == "Origin"
            for response in (preflight, read):
                assert "access-control-allow-origin" not in response.headers


DURATIONS = ("SESSION_IDLE_SECONDS", "SESSION_ABSOLUTE_SECONDS", "FAILED_LOGINS_WINDOW_SECONDS")
INVALID = {
    **dict.fromkeys(DURATIONS, ("0", "inf", "1e12", "8h")),
    "ALLOWED_HOSTS": ("https://api.test", "api.test:8000", "*", "api.*.test"),
    "ALLOWED_ORIGINS": ("*", "null", "app.example.com", "https://*.example.com", "https://app.example.com/"),
}


@pytest.mark.parametrize("variable", INVALID)
def test_an_invalid_setting_ends_the_start(variable: str, capsys: pytest.CaptureFixture[str]) -> None:
    for value in INVALID[variable]:
        with pytest.raises(SystemExit):
            load(EmployeeApiSettings, {variable: value})
        [line] = capsys.readouterr().err.splitlines()
        assert line.startswith(f"{variable}: ")
