import re
from typing import Any

import httpx2
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis.strategies import booleans
from openapi_spec_validator import OpenAPIV31SpecValidator
from starlette.routing import Route

from employee_api.http.openapi import EXAMPLE_ID
from shop_kit.employee_api import Api, StartApi, started_with, task_path


async def test_every_route_is_described(api: Api) -> None:
    routes = [route for route in api.asgi.routes if isinstance(route, Route)]
    served = {(method, route.path) for route in routes for method in route.methods or () if method != "HEAD"}
    served |= {("GET", "/healthz"), ("GET", "/readyz")}  # by the chassis
    described = {(method, path) for method, path, _ in await api.operations()}
    assert served - described == {("GET", "/"), ("GET", "/docs"), ("GET", "/openapi.json")}
    assert described <= served


STATUSES = {
    "off": {
        "POST /api/auth/login": "200 400 401 403 500 503",
        "POST /api/auth/register": "201 400 403 409 422 500 503",
        "GET /api/auth/users": "200 500",
        "DELETE /api/auth/users/{id}": "200 403 404 500",
        "GET /api/export/tasks": "200 400 429 500",
        "GET /readyz": "200 500 503",
    },
    "observe": {"POST /api/auth/login": "200 400 401 403 500 503"},
    "enforce": {
        "POST /api/auth/login": "200 400 401 403 415 429 500 503",
        "GET /api/auth/users": "200 401 403 500 503",
        "DELETE /api/auth/users/{id}": "200 401 403 404 409 500 503",
    },
}
CREDENTIALS: list[dict[str, list[str]]] = [{"session": []}, {"bearer": ["tasks:read"]}]


@pytest.mark.parametrize(
    ("mode", "security"), [("off", None), ("observe", [{}, *CREDENTIALS]), ("enforce", CREDENTIALS)]
)
async def test_the_document_describes_status_and_credentials(start_api: StartApi, mode: str, security: object) -> None:
    async with start_api(auth_mode=mode) as api:
        document = await api.fetch("GET /openapi.json")
        described = {f"{method} {path}": operation for method, path, operation in await api.operations()}
    assert document["openapi"].startswith("3.1")
    OpenAPIV31SpecValidator(document).validate()
    assert described["GET /api/tasks"].get("security") == security
    assert "security" not in described["POST /api/auth/login"]
    assert set(document["components"].get("securitySchemes", {})) == (set() if mode == "off" else {"session", "bearer"})
    found = {name: " ".join(sorted(described[name]["responses"])) for name in STATUSES[mode]}
    assert found == STATUSES[mode]


# What is invalid does not depend on the mode.
@pytest.mark.timeout(0)  # a loaded machine takes minutes
@pytest.mark.parametrize(
    ("mode", "generation"),
    [
        *(pytest.param(mode, "positive", marks=pytest.mark.long) for mode in ("off", "observe")),
        ("enforce", "positive"),
        ("enforce", "negative"),
    ],
)
async def test_responses_conform_to_the_document(start_api: StartApi, mode: str, generation: str) -> None:
    # Imported here, because every test process imports every file, and this takes a second.
    import schemathesis  # noqa: PLC0415
    from schemathesis.checks import not_a_server_error  # noqa: PLC0415
    from schemathesis.generation import GenerationMode  # noqa: PLC0415
    from schemathesis.specs.openapi import checks  # noqa: PLC0415

    conforms = [
        not_a_server_error,
        checks.status_code_conformance,
        checks.content_type_conformance,
        checks.response_headers_conformance,
        checks.response_schema_conformance,
    ]
    async with started_with(start_api, mode, "ceo") as (api, [user]):
        task = await api.add_task()
        comment = await api.fetch(f"POST {task_path(task)}/comments", {"body": "Done"})
        _, invitation = await api.answer("POST /api/auth/invitations", {"role": "qa"})
        existing = {"users": user, "tasks": task, "comments": comment, "invitations": invitation}
        ids = {segment: found.get("id", "unknown") for segment, found in existing.items()}
        schema: Any = schemathesis.openapi.from_dict(await api.fetch("GET /openapi.json"))
        # Deletions come last, so that the existing user and task are found until then.
        operations = [found.ok() for found in schema.get_all_operations()]
        for operation in sorted(operations, key=lambda operation: str(operation.method == "delete")):
            raw = operation.definition.raw
            takes_input = "requestBody" in raw or any(given["in"] == "query" for given in raw.get("parameters", []))
            if generation == "positive" or takes_input:
                cases = generated(operation, GenerationMode(generation), ids)
                assert cases, operation.label
                for case in cases:
                    case.validate_response(await send(api, case), checks=conforms)  # raises


def generated(operation: Any, generation: Any, ids: dict[str, str]) -> list[Any]:
    """Return requests, some of them with the ids of what exists, which are named by the segment before them."""
    known = {name: ids.get(segment, EXAMPLE_ID) for segment, name in re.findall(r"(\w+)/{(\w+)}", operation.path)}
    cases = []

    @settings(
        max_examples=3,
        deadline=None,
        derandomize=True,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(case=operation.as_strategy(generation), exists=booleans())
    def collect(case: Any, exists: bool) -> None:
        if exists and known:
            case.path_parameters = known
        cases.append(case)

    collect()
    return cases


async def send(api: Api, case: Any) -> httpx2.Response:
    request = case.as_transport_kwargs(base_url=str(api.client.base_url))
    request |= {"cookies": None, "content": request.pop("data", None)}
    return await api.client.request(**request)
