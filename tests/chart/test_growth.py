"""More replicas: of everything at once, by autoscalers, and disruption budgets that let a node be drained."""

from typing import Any

Object = dict[str, Any]


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
    manifests = render({"highAvailability": True, "load": {"enabled": True}, "observability": {"enabled": True}})
    check_drain(manifests)
    services = {f"shop-{name}" for name in values["services"]}
    assert {name for name, number in replicas(manifests).items() if number == 2} == services
    assert budgets(manifests).keys() == services
    assert manifests.one("Deployment", "shop-load-generator")["spec"]["replicas"] == 1
