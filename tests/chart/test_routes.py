"""Which requests reach the release from outside, and how they are shared between versions of a service."""

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
SHOP = {"url": "https://shop.example.com", "env": {"TRUSTED_PROXIES": "10.0.0.0/16"}}
# What checkout calls when an order is paid for: not for customers.
EFFECTS_OF_ORDERS = {"Charge", "ShipOrder", "SendOrderConfirmation"}


def test_routes_lead_to_exposed_methods_only(render: Any, values: dict[str, Any], grpc_services: list[str]) -> None:
    manifests = render({"gateway": GATEWAY, "services": {"storefront": SHOP}})
    rules = manifests.one("GRPCRoute", "shop-shop")["spec"]["rules"]
    routed = {
        (rule["backendRefs"][0]["name"], match["method"]["service"], match["method"]["method"])
        for rule in rules
        for match in rule["matches"]
    }
    assert routed == {
        (f"shop-{name}", f"shop.{name.title().replace('-', '')}Service", method)
        for name in grpc_services
        for method in values["services"][name].get("exposed", [])
    }
    assert {method for _, _, method in routed} & EFFECTS_OF_ORDERS == set()
    assert {backend["port"] for rule in rules for backend in rule["backendRefs"]} == {50051}
    removed = {name for rule in rules for name in rule["filters"][0]["requestHeaderModifier"]["remove"]}
    assert removed == {"traceparent", "tracestate", "baggage"}


def test_no_example_publishes_methods_without_a_sign_in() -> None:
    for file in ("values-production.yaml", "examples/argo-cd.yaml", "examples/flux.yaml"):
        assert "grpcHostnames" not in (ROOT / "charts/shop" / file).read_text()


ROUTES = [
    (["v1"], {"shop-recommendation-v1": None}),
    (["v2"], {"shop-recommendation-v2": None}),
    ([], {"shop-recommendation-v1": 90, "shop-recommendation-v2": 10}),
]
CANARY = {"v1": {"weight": 90, "replicas": 2}, "v2": {"weight": 10, "env": {"LOG_LEVEL": "debug"}}}


def given(versions: Any, **values: Any) -> dict[str, Any]:
    services = {"storefront": SHOP, "recommendation": {"versions": versions}}
    return {"telemetry": {"endpoint": "http://otel:4317"}, "services": services, **values}


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
