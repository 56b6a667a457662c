"""Versions of a service at once: a Deployment and a Service each, and routes with weights and a header for testers."""

import json
import re
from pathlib import Path
from typing import Any, get_args, get_type_hints

import pytest
from jsonschema import validate  # type: ignore[import-untyped]

from recommendation_service.__main__ import Settings

ROOT = Path(__file__).resolve().parents[2]
CHART = ROOT / "charts/shop"
SCHEMAS = json.loads((ROOT / "tests/chart/schemas/meshes.json").read_text())
GATEWAY = {"enabled": True, "parentRefs": [{"name": "public"}], "grpcHostnames": ["grpc.example.com"]}
VERSION = "app.kubernetes.io/version"
PODS = {"app.kubernetes.io/name": "recommendation", "app.kubernetes.io/instance": "shop"}
CANARY = {"v1": {"weight": 90, "replicas": 2}, "v2": {"weight": 10, "env": {"LOG_LEVEL": "debug"}}}


def given(versions: Any, **values: Any) -> dict[str, Any]:
    shop = {"storefront": {"url": "https://shop.example.com"}, "recommendation": {"versions": versions}}
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


def test_each_version_has_a_deployment_that_says_which_it_is(render: Any) -> None:
    manifests = render(given(CANARY))
    assert not manifests.has("Deployment", "shop-recommendation")
    for version, replicas in (("v1", 2), ("v2", 1)):
        spec = manifests.one("Deployment", f"shop-recommendation-{version}")["spec"]
        assert spec["replicas"] == replicas
        assert spec["selector"]["matchLabels"] == {**PODS, VERSION: version}
        assert spec["template"]["metadata"]["labels"].items() >= spec["selector"]["matchLabels"].items()
        environment = manifests.environment(f"recommendation-{version}")
        assert environment["RECOMMENDATION_VERSION"] == version
        attributes = set(environment["OTEL_RESOURCE_ATTRIBUTES"].split(","))
        assert attributes >= {f"service.version={version}", f"k8s.deployment.name=shop-recommendation-{version}"}
    assert manifests.environment("recommendation-v2")["LOG_LEVEL"] == "debug"
    assert manifests.environment("recommendation-v1")["LOG_LEVEL"] == "info"


def test_the_digest_of_an_image_is_not_that_of_a_version_s_own(render: Any) -> None:
    digest, values = f"sha256:{'a' * 64}", given({"v1": {}, "v2": {"image": {"tag": "next"}}})
    values["services"]["recommendation"]["image"] = {"digest": digest}
    images = [render(values).container(f"recommendation-{version}")["image"] for version in ("v1", "v2")]
    assert [image.partition("/recommendation")[2] for image in images] == [f"@{digest}", ":next"]


def test_a_service_selects_one_version_and_the_service_s_own_all(render: Any) -> None:
    manifests = render(given(CANARY))
    for version in CANARY:
        spec = manifests.one("Service", f"shop-recommendation-{version}")["spec"]
        assert spec["selector"] == {**PODS, VERSION: version}
        assert "clusterIP" not in spec  # the weights of headless backends are ignored
    assert manifests.one("Service", "shop-recommendation")["spec"]["selector"] == PODS
    policy = manifests.one("NetworkPolicy", "shop-recommendation")["spec"]["podSelector"]
    assert policy == {"matchLabels": PODS}


def test_budgets_and_autoscalers_are_of_one_version(render: Any) -> None:
    budgets = [found for found in render(given(CANARY)).all("PodDisruptionBudget") if "recommendation" in str(found)]
    assert [found["spec"]["selector"]["matchLabels"][VERSION] for found in budgets] == ["v1"]
    values = given(CANARY)
    values["services"]["recommendation"]["autoscaling"] = {"enabled": True}
    targets = [found["spec"]["scaleTargetRef"]["name"] for found in render(values).all("HorizontalPodAutoscaler")]
    assert targets == ["shop-recommendation-v1", "shop-recommendation-v2"]


@pytest.mark.parametrize("mesh", ["sidecar", "ambient"])
def test_a_mesh_shares_calls_by_weight_and_leads_those_with_a_header_to_a_version(render: Any, mesh: str) -> None:
    manifests = render(given(CANARY, mesh=mesh))
    assert routed(manifests, "shop-recommendation") == [
        (["v1"], {"shop-recommendation-v1": None}),
        (["v2"], {"shop-recommendation-v2": None}),
        ([], {"shop-recommendation-v1": 90, "shop-recommendation-v2": 10}),
    ]
    route = manifests.one("GRPCRoute", "shop-recommendation")["spec"]
    (parent,) = route["parentRefs"]
    assert manifests.has("Service", parent["name"])
    assert manifests.environment("storefront")["RECOMMENDATION_ADDR"] == f"{parent['name']}:{parent['port']}"
    # Health, which callers watch, has the route as well.
    assert "method" not in json.dumps(route)


def test_a_gateway_does_the_same_with_exposed_methods_only(render: Any) -> None:
    manifests = render(given(CANARY, gateway=GATEWAY))
    assert routed(manifests, "shop-shop") == [
        (["v1"], {"shop-recommendation-v1": None}),
        (["v2"], {"shop-recommendation-v2": None}),
        ([], {"shop-recommendation-v1": 90, "shop-recommendation-v2": 10}),
    ]
    for rule in manifests.one("GRPCRoute", "shop-shop")["spec"]["rules"]:
        assert all("method" in match for match in rule["matches"])
        assert rule["filters"]
    assert not manifests.has("GRPCRoute", "shop-recommendation")


def test_without_weights_routes_are_somebody_else_s(render: Any) -> None:
    manifests = render(given({"v1": {}, "v2": {}, "v3": None}, mesh="sidecar", gateway=GATEWAY))
    assert manifests.has("Deployment", "shop-recommendation-v2")
    assert not manifests.has("Deployment", "shop-recommendation-v3")
    assert not manifests.has("GRPCRoute", "shop-recommendation")
    assert routed(manifests, "shop-shop")[-1] == ([], {"shop-recommendation-clusterip": None})


def test_versions_are_those_that_the_service_knows(render: Any) -> None:
    known = get_args(get_type_hints(Settings)["recommendation_version"])
    with pytest.raises(ValueError, match=re.escape(f'no version "v9"; the service has {", ".join(known)}')):
        render(given({"v9": {"weight": 100}}))
