"""What an entry in `services` renders: addresses, probes, ports, variables, files, resources."""

from typing import Any

import pytest

from checkout_service.__main__ import Settings as CheckoutSettings
from checkout_service.reconciliation.__main__ import ReconciliationSettings
from shipping_service.__main__ import Settings as ShippingSettings


@pytest.mark.parametrize("tls", [False, True])
def test_a_grpc_service_has_ports_for_callers_internal_callers_and_probes(
    tls: bool, render: Any, values: dict[str, Any], grpc_services: list[str]
) -> None:
    manifests = render({"tls": {"enabled": tls}})
    for name in grpc_services:
        container, environment = manifests.container(name), manifests.environment(name)
        full_name = f"shop.{name.title().replace('-', '')}Service"
        for probe, service in (("readiness", full_name), ("liveness", "liveness"), ("startup", "liveness")):
            assert container[f"{probe}Probe"]["grpc"] == {"port": 50053, "service": service}
            assert "httpGet" not in container[f"{probe}Probe"]
        internal = (values["services"][name] or {}).get("internal", False)
        expected = {"grpc": 50051} | ({"grpc-internal": 50052} if internal else {})
        service = manifests.one("Service", f"shop-{name}")["spec"]
        assert {port["name"]: port["port"] for port in service["ports"]} == expected
        assert service["clusterIP"] == "None"
        assert {port["appProtocol"] for port in service["ports"]} == {"https" if tls else "kubernetes.io/h2c"}
        assert {port["name"]: port["containerPort"] for port in container["ports"]} == {
            **expected,
            "grpc-health": 50053,
        }
        assert (environment["PORT"], environment["HEALTH_PORT"]) == ("50051", "50053")
        assert environment.get("INTERNAL_PORT") == ("50052" if internal else None)
    assert "50053" not in str(manifests.all("NetworkPolicy"))


def test_a_replaced_variable_keeps_its_place_before_those_that_refer_to_it(render: Any) -> None:
    values = {"observability": {"enabled": True}, "services": {"cart": {"env": {"POD_NAME": "me", "ADDED": "last"}}}}
    names = [variable["name"] for variable in render(values).container("cart")["env"]]
    assert len(names) == len(set(names))
    assert names.index("POD_NAME") < names.index("OTEL_RESOURCE_ATTRIBUTES")
    assert names[-1] == "ADDED"


def test_retention_is_the_default_of_the_services_and_shipping_s_may_be_longer(render: Any) -> None:
    for service, settings in (("checkout", CheckoutSettings), ("shipping", ShippingSettings)):
        assert float(render().environment(service)["RETENTION_DAYS"]) == settings.retention_days
    days = {"shipping": 200, "checkout": "100.5"}
    services = {name: {"env": {"RETENTION_DAYS": value}} for name, value in days.items()}
    assert render({"services": services}).environment("shipping")["RETENTION_DAYS"] == "200"


def test_a_service_s_scheduling_overrides_that_of_all_pods(render: Any) -> None:
    shared, own = (
        {
            "nodeSelector": {"pods": whose},
            "tolerations": [{"key": whose, "operator": "Exists"}],
            "affinity": {affinity: {}},
            "priorityClassName": whose,
        }
        for whose, affinity in (("all", "podAffinity"), ("own", "podAntiAffinity"))
    )
    manifests = render(
        {"scheduling": shared, "observability": {"enabled": True}, "services": {"checkout": {"scheduling": own}}}
    )
    for name, pod in manifests.pod_templates():
        expected = own if name == "shop-checkout" else shared
        assert {key: pod["spec"][key] for key in expected} == expected, name


def test_the_job_ends_itself_before_its_deadline(render: Any) -> None:
    job = render().one("CronJob", "shop-reconciliation")["spec"]["jobTemplate"]["spec"]
    assert job["activeDeadlineSeconds"] > ReconciliationSettings.stop_after_seconds + 60
