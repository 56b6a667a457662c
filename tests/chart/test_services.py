"""What an entry in `services` renders, and which values the chart rejects."""

import re
from typing import Any

import pytest


def mebibytes(quantity: str) -> float:
    number, unit = re.fullmatch(r"([0-9.]+)(Mi|Gi)", quantity).groups()  # type: ignore[union-attr]
    return float(number) * (1024 if unit == "Gi" else 1)


def cores(quantity: str) -> float:
    return float(quantity.removesuffix("m")) / (1000 if quantity.endswith("m") else 1)


def test_a_call_sets_the_address_of_the_callee(render: Any, values: dict[str, Any]) -> None:
    manifests = render()
    for name, entry in values["services"].items():
        addresses = {key: value for key, value in manifests.environment(name).items() if key.endswith("_ADDR")}
        assert addresses == {
            f"{callee.upper().replace('-', '_')}_{suffix}": f"shop-{callee}:{port}"
            for calls, suffix, port in (("calls", "ADDR", 50051), ("internalCalls", "INTERNAL_ADDR", 50052))
            for callee in (entry or {}).get(calls, [])
        }


@pytest.mark.parametrize("tls", [False, True])
def test_grpc_probes_check_readiness_per_service_and_liveness_per_process_on_a_port_of_their_own(
    tls: bool, render: Any, grpc_services: list[str]
) -> None:
    manifests = render({"tls": {"enabled": tls}})
    for name in grpc_services:
        container = manifests.container(name)
        assert manifests.environment(name)["HEALTH_PORT"] == "50053"
        assert 50053 not in {port["port"] for port in manifests.one("Service", f"shop-{name}")["spec"]["ports"]}
        full_name = f"shop.{name.title().replace('-', '')}Service"
        assert container["readinessProbe"]["grpc"] == {"port": 50053, "service": full_name}
        assert container["livenessProbe"]["grpc"] == {"port": 50053, "service": "liveness"}
        assert container["startupProbe"]["grpc"] == {"port": 50053, "service": "liveness"}
    assert "50053" not in str(manifests.all("NetworkPolicy"))


def test_every_probe_has_one_handler(render: Any, matrix_values: dict[str, Any]) -> None:
    for _, pod in render(matrix_values).pod_templates():
        for container in pod["spec"]["containers"]:
            for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
                assert len({"grpc", "httpGet", "exec", "tcpSocket"} & set(container.get(probe, {"exec": 0}))) == 1


@pytest.mark.parametrize(("name", "port"), [("storefront", 8080), ("employee-api", 8000)])
def test_an_http_service_has_one_port_everywhere(render: Any, name: str, port: int) -> None:
    manifests = render()
    container = manifests.container(name)
    for probe, path in (("startup", "/healthz"), ("readiness", "/readyz"), ("liveness", "/healthz")):
        assert container[f"{probe}Probe"]["httpGet"] == {"path": path, "port": port}
    assert container["ports"] == [{"name": "http", "containerPort": port}]
    assert manifests.environment(name)["PORT"] == str(port)
    (exposed,) = manifests.one("Service", f"shop-{name}")["spec"]["ports"]
    assert exposed["port"] == port


def test_services_of_grpc_are_headless_and_use_the_port_of_the_container(render: Any, grpc_services: list[str]) -> None:
    manifests = render()
    for name in grpc_services:
        service = manifests.one("Service", f"shop-{name}")["spec"]
        port = service["ports"][0]
        assert service["clusterIP"] == "None"
        assert port["port"] == manifests.container(name)["ports"][0]["containerPort"] == 50051
        assert port["appProtocol"] == "kubernetes.io/h2c"


def test_internal_services_have_a_port_of_their_own(
    render: Any, values: dict[str, Any], grpc_services: list[str]
) -> None:
    manifests = render()
    for name in grpc_services:
        internal = (values["services"][name] or {}).get("internal", False)
        ports = {port["name"]: port["port"] for port in manifests.one("Service", f"shop-{name}")["spec"]["ports"]}
        container = {port["name"]: port["containerPort"] for port in manifests.container(name)["ports"]}
        expected = {"grpc": 50051} | ({"grpc-internal": 50052} if internal else {})
        assert ports == expected
        assert container == {**expected, "grpc-health": 50053}
        assert manifests.environment(name).get("INTERNAL_PORT") == ("50052" if internal else None)


def test_an_autoscaler_sets_the_number_of_replicas(render: Any) -> None:
    manifests = render({"services": {"cart": {"autoscaling": {"enabled": True}}}})
    assert "replicas" not in manifests.one("Deployment", "shop-cart")["spec"]
    assert manifests.one("HorizontalPodAutoscaler", "shop-cart")["spec"]["minReplicas"] == 2
    assert manifests.one("Deployment", "shop-ad")["spec"]["replicas"] == 1
    assert not manifests.has("HorizontalPodAutoscaler", "shop-ad")


def test_false_and_zero_override_a_default(render: Any) -> None:
    values = {
        "defaults": {"autoscaling": {"enabled": True}, "shutdown": {"graceSeconds": 9}},
        "services": {"ad": {"autoscaling": {"enabled": False}, "shutdown": {"graceSeconds": 0}, "replicas": 0}},
    }
    manifests = render(values)
    assert manifests.one("Deployment", "shop-ad")["spec"]["replicas"] == 0
    assert manifests.environment("ad")["GRACE_SECONDS"] == "0"
    assert manifests.environment("cart")["GRACE_SECONDS"] == "9"


def test_a_data_file_replaces_that_of_the_service(render: Any) -> None:
    files = {"CATALOG_FILE": {"name": "products.json", "content": "{}"}}
    manifests = render({"services": {"product-catalog": {"files": files}}})
    assert manifests.environment("product-catalog")["CATALOG_FILE"] == "/etc/shop/products.json"
    assert manifests.one("ConfigMap", "shop-product-catalog")["data"] == {"products.json": "{}"}
    mounts = manifests.container("product-catalog")["volumeMounts"]
    assert {"name": "files", "mountPath": "/etc/shop", "readOnly": True} in mounts


def test_services_request_60_mebibytes_and_0_06_cores_on_average(render: Any, values: dict[str, Any]) -> None:
    requests = [render().container(name)["resources"]["requests"] for name in values["services"]]
    assert sum(mebibytes(request["memory"]) for request in requests) <= 60 * len(requests)
    assert sum(cores(request["cpu"]) for request in requests) <= 0.06 * len(requests)


def test_everything_with_observability_fits_a_node_of_four_gibibytes(render: Any) -> None:
    manifests = render({"observability": {"enabled": True}})
    resources = [
        container["resources"]
        for found in [*manifests.all("Deployment"), *manifests.all("StatefulSet")]
        for container in found["spec"]["template"]["spec"]["containers"]
    ]
    assert sum(mebibytes(found["requests"]["memory"]) for found in resources) <= 1.5 * 1024
    assert sum(mebibytes(found["limits"]["memory"]) for found in resources) <= 3.75 * 1024
    assert sum(cores(found["requests"]["cpu"]) for found in resources) <= 1.5
