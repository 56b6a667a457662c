"""Versions of a service at once: a Deployment and a Service each, and routes with weights and a header for testers."""

import json
import re
from pathlib import Path
from typing import Any, get_args, get_type_hints

import pytest
from jsonschema import validate  # type: ignore[import-untyped]

from recommendation_service.__main__ import Settings

ROOT = Path(__file__).resolve().parents[2]
SCHEMAS = json.loads((ROOT / "tests/chart/schemas/meshes.json").read_text())
GATEWAY = {"enabled": True, "parentRefs": [{"name": "public"}], "grpcHostnames": ["grpc.example.com"]}
ROUTES = [
    (["v1"], {"shop-recommendation-v1": None}),
    (["v2"], {"shop-recommendation-v2": None}),
    ([], {"shop-recommendation-v1": 90, "shop-recommendation-v2": 10}),
]
CANARY = {"v1": {"weight": 90, "replicas": 2}, "v2": {"weight": 10, "env": {"LOG_LEVEL": "debug"}}}


def given(versions: Any, **values: Any) -> dict[str, Any]:
    storefront = {"url": "https://shop.example.com", "env": {"TRUSTED_PROXIES": "10.0.0.0/16"}}
    shop = {"storefront": storefront, "recommendation": {"versions": versions}}
    return {"telemetry": {"endpoint": "http://otel:4317"}, "services": shop, **values}


def routed(manifests: Any, name: str) -> list[tuple[Any, dict[str, int | None]]]:
    """Return the headers and the weighted backends of each rule for the recommendation."""
    route = manifests.one("GRPCRoute", name)
    validate(route, SCHEMAS[f"{route['apiVersion']} GRPCRoute"])
    return [
        (
            [header["value"] for match in rule.get("matches", []) for header in match.get("headers", [])],
            {backend["name"]: backend.get("weight") for backend in rule["backendRefs"]},
        )
        for rule in route["spec"]["rules"]
        if rule["backendRefs"][0]["name"].startswith("shop-recommendation")
    ]


@pytest.mark.parametrize("mesh", ["sidecar", "ambient"])
def test_a_mesh_shares_calls_by_weight_and_leads_those_with_a_header_to_a_version(render: Any, mesh: str) -> None:
    manifests = render(given(CANARY, mesh=mesh))
    assert routed(manifests, "shop-recommendation") == ROUTES
    route = manifests.one("GRPCRoute", "shop-recommendation")["spec"]
    (parent,) = route["parentRefs"]
    assert manifests.has("Service", parent["name"])
    assert manifests.environment("storefront")["RECOMMENDATION_ADDR"] == f"{parent['name']}:{parent['port']}"
    # Health, which callers watch, has the route as well.
    assert "method" not in json.dumps(route)


def test_a_gateway_does_the_same_with_exposed_methods_only(render: Any) -> None:
    manifests = render(given(CANARY, gateway=GATEWAY))
    assert routed(manifests, "shop-shop") == ROUTES
    for rule in manifests.one("GRPCRoute", "shop-shop")["spec"]["rules"]:
        assert all("method" in match for match in rule["matches"])
        assert rule["filters"]
    assert not manifests.has("GRPCRoute", "shop-recommendation")


def test_versions_are_those_that_the_service_knows(render: Any) -> None:
    known = get_args(get_type_hints(Settings)["recommendation_version"])
    with pytest.raises(ValueError, match=re.escape(f'no version "v9"; the service has {", ".join(known)}')):
        render(given({"v9": {"weight": 100}}))
