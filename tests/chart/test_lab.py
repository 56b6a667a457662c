"""A laboratory: services that can be made to fail, by one caller alone, in a shop that has no customers."""

import json
from typing import Any

LAB: dict[str, Any] = {"lab": {"enabled": True}}
LABEL = "shop/lab"


def test_without_it_nothing_is_left_of_it(render: Any) -> None:
    text = json.dumps(render({"tls": {"enabled": True}}).objects)
    assert [word for word in ('"LAB"', "Failpoints", "/modules", LABEL, "shop-lab") if word in text] == []


def test_with_it_every_object_says_so_and_no_pod_changes_its_labels(render: Any) -> None:
    manifests = render(LAB)
    assert {found["metadata"].get("labels", {}).get(LABEL) for found in manifests.objects} == {"true"}
    before = {name: pod["metadata"]["labels"] for name, pod in render().pod_templates() if "-test-" not in name}
    after = {name: pod["metadata"]["labels"] for name, pod in manifests.pod_templates()}
    assert {name: after[name] for name in before} == before


def test_each_grpc_service_serves_failpoints_to_the_laboratory_alone(render: Any, grpc_services: list[str]) -> None:
    manifests = render({**LAB, "tls": {"enabled": True}})
    methods = [f"shop.internal.Failpoints/{name}" for name in ("ListFailpoints", "SetFailpoint")]
    for name in grpc_services:
        environment = manifests.environment(name)
        assert [environment["LAB"], environment["INTERNAL_PORT"]] == ["1", "50052"]
        allowed = json.loads(environment["ALLOWED_CALLS"])
        for caller in ("spiffe://cluster.local/ns/shop/sa/shop-lab", "shop-lab.shop.svc.cluster.local"):
            assert allowed.pop(caller) == methods
        assert "Failpoints" not in json.dumps(allowed)
        assert 50052 in [port["port"] for port in manifests.one("Service", f"shop-{name}")["spec"]["ports"]]
    assert "shop-lab-tls" in json.dumps(manifests.objects)
