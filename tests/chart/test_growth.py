"""More replicas: of everything at once, by autoscalers, and disruption budgets that let a node be drained."""

import json
from pathlib import Path
from typing import Any

import jsonschema  # type: ignore[import-untyped]
import pytest
import yaml

Object = dict[str, Any]
SCHEMA = json.loads((Path(__file__).with_name("schemas") / "scaledobject.json").read_text())
AUTOSCALED = {"autoscaling": {"enabled": True, "minReplicas": 1, "maxReplicas": 3}}
BY_CALLS = {"autoscaling": {**AUTOSCALED["autoscaling"], "keda": {"requestsInFlight": 20}}}
OBSERVABILITY = {"observability": {"enabled": True}}
WITHOUT_STORES = yaml.safe_load("""
defaults: {existingSecret: mine}
postgresql: {enabled: false}
externalDatabase: {host: db}
valkey: {enabled: false}
externalValkey: {host: valkey, existingSecret: mine}
""")


def replicas(manifests: Any) -> dict[str, int]:
    """Return the least number of replicas of each workload."""
    found = {found["metadata"]["name"]: found["spec"].get("replicas", 0) for found in workloads(manifests)}
    for scaler in manifests.all("HorizontalPodAutoscaler"):
        found[scaler["spec"]["scaleTargetRef"]["name"]] = scaler["spec"]["minReplicas"]
    for scaler in manifests.all("ScaledObject"):
        found[scaler["spec"]["scaleTargetRef"]["name"]] = scaler["spec"]["minReplicaCount"]
    return found


def workloads(manifests: Any) -> list[Object]:
    return [*manifests.all("Deployment"), *manifests.all("StatefulSet")]


def budgets(manifests: Any) -> dict[str, Object]:
    """Return the disruption budget of each workload that has one; fail if one is for other pods."""
    found = {}
    for budget in manifests.all("PodDisruptionBudget"):
        (name,) = [
            workload["metadata"]["name"]
            for workload in workloads(manifests)
            if workload["spec"]["selector"] == budget["spec"]["selector"]
        ]
        found[name] = budget["spec"]
    return found


def check_drain(manifests: Any) -> None:
    """Fail if pods that are all healthy, or none of which is, would not be evicted one after the other."""
    found = replicas(manifests)
    for name, budget in budgets(manifests).items():
        assert budget["unhealthyPodEvictionPolicy"] == "AlwaysAllow", name
        allowed = budget["maxUnavailable"] if "maxUnavailable" in budget else found[name] - budget["minAvailable"]
        assert min(allowed, found[name]) >= 1, name


def test_no_disruption_budget_stops_a_drain(render: Any, matrix_values: Object) -> None:
    check_drain(render(matrix_values))


def test_high_availability_is_two_replicas_of_every_service_and_stops_no_drain(render: Any, values: Object) -> None:
    manifests = render({"highAvailability": True, "load": {"enabled": True}, **OBSERVABILITY})
    check_drain(manifests)
    services = {f"shop-{name}" for name in values["services"]}
    assert {name for name, number in replicas(manifests).items() if number == 2} == services
    assert budgets(manifests).keys() == services
    assert manifests.one("Deployment", "shop-load-generator")["spec"]["replicas"] == 1


def test_an_own_number_wins_over_high_availability_and_more_than_one_pod_has_a_budget(render: Any) -> None:
    own = {
        "ad": {"replicas": 1},
        "currency": {"replicas": 3},
        "checkout": AUTOSCALED,
        "shipping": BY_CALLS,
        "email": {},
    }
    values = {"highAvailability": True, "services": own, **OBSERVABILITY, **WITHOUT_STORES}
    manifests = render(values)
    check_drain(manifests)
    expected = {"ad": 1, "currency": 3, "checkout": 1, "shipping": 1, "email": 2}
    found = replicas(manifests)
    assert {name: found[f"shop-{name}"] for name in own} == expected
    assert "shop-ad" not in budgets(manifests)
    assert {f"shop-{name}" for name in own if name != "ad"} <= budgets(manifests).keys()


@pytest.mark.parametrize(("defaults", "expected"), [({"replicas": 3}, 3), ({"replicas": 1}, 2), (AUTOSCALED, 2)])
def test_high_availability_is_the_minimum_of_the_defaults(render: Any, defaults: Object, expected: int) -> None:
    assert replicas(render({"highAvailability": True, "defaults": defaults}))["shop-ad"] == expected


def test_keda_scales_in_place_of_the_autoscaler_and_reads_the_chart_s_prometheus(render: Any) -> None:
    manifests = render({"services": {"checkout": BY_CALLS, "ad": AUTOSCALED}, **OBSERVABILITY})
    assert [found["metadata"]["name"] for found in manifests.all("HorizontalPodAutoscaler")] == ["shop-ad"]
    jsonschema.validate(manifests.one("ScaledObject", "shop-checkout"), SCHEMA)
    operators = [{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "keda"}}}]
    rule = {"from": operators, "ports": [{"port": 9090}]}
    for rendered, expected in ((manifests, True), (render(OBSERVABILITY), False)):
        assert (rule in rendered.one("NetworkPolicy", "shop-prometheus")["spec"]["ingress"]) is expected
