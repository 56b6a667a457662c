"""Where telemetry goes, what it is attributed to, and what Prometheus scrapes."""

from typing import Any

import pytest
import yaml

DIGEST = "sha256:" + "0123456789abcdef" * 4


def otlp_egress(manifests: Any, name: str) -> list[int]:
    """Return the ports that a service may use to reach any peer."""
    policy = manifests.one("NetworkPolicy", f"shop-{name}")["spec"]
    return [port["port"] for rule in policy["egress"] if "to" not in rule for port in rule["ports"]]


def test_nothing_is_exported_without_an_endpoint(render: Any) -> None:
    assert not [name for name in render().environment("cart") if name.startswith("OTEL_")]


def test_the_bundled_collector_is_the_endpoint_with_observability(render: Any) -> None:
    environment = render({"observability": {"enabled": True}}).environment("cart")
    assert environment["OTEL_EXPORTER_OTLP_ENDPOINT"] == "http://shop-otel-collector:4317"


@pytest.mark.parametrize(
    ("endpoint", "address", "port"),
    [
        ("http://collector:4317", "http://collector:4317", 4317),
        ("http://collector", "http://collector:80", 80),
        ("https://collector", "https://collector:443", 443),
        ("https://collector/v1/traces", "https://collector:443/v1/traces", 443),
        ("https://collector:8443/v1", "https://collector:8443/v1", 8443),
        ("http://[fd00::1]:4318", "http://[fd00::1]:4318", 4318),
        ("http://[fd00::1]", "http://[fd00::1]:80", 80),
        ("http://collector4317", "http://collector4317:80", 80),
    ],
)
def test_the_policy_opens_the_port_that_the_exporter_uses(render: Any, endpoint: str, address: str, port: int) -> None:
    manifests = render({"telemetry": {"endpoint": endpoint}})
    assert manifests.environment("cart")["OTEL_EXPORTER_OTLP_ENDPOINT"] == address
    assert otlp_egress(manifests, "cart") == [port]


def attributes(manifests: Any, name: str) -> dict[str, str]:
    pairs = manifests.environment(name)["OTEL_RESOURCE_ATTRIBUTES"].split(",")
    return dict(pair.partition("=")[::2] for pair in pairs)


@pytest.mark.parametrize(
    ("shared", "own", "version"),
    [
        ("", {}, "0.1.0"),
        ("1.2.3", {}, "1.2.3"),
        ("1.2.3", {"tag": "1.2.4"}, "1.2.4"),
        ("1.2.3", {"digest": DIGEST}, DIGEST),
        ("1.2.3", {"tag": "1.2.4", "digest": DIGEST}, "1.2.4"),
    ],
)
def test_the_service_version_is_that_of_the_image(render: Any, shared: str, own: dict[str, str], version: str) -> None:
    values = {
        "telemetry": {"endpoint": "http://c:4317"},
        "image": {"tag": shared},
        "services": {"cart": {"image": own}},
    }
    assert attributes(render(values), "cart")["service.version"] == version


def test_resource_attributes_are_added_and_replaced(render: Any) -> None:
    own = {"deployment.environment.name": "test", "service.version": "custom"}
    manifests = render({"telemetry": {"endpoint": "http://c:4317", "resourceAttributes": own}})
    assert attributes(manifests, "cart") == {
        "service.version": "custom",
        "service.instance.id": "$(POD_NAME)",
        "k8s.pod.name": "$(POD_NAME)",
        "k8s.namespace.name": "shop",
        "deployment.environment.name": "test",
    }


def test_prometheus_scrapes_the_metrics_of_the_collector(render: Any) -> None:
    manifests = render({"observability": {"enabled": True}})
    config = yaml.safe_load(manifests.one("ConfigMap", "shop-prometheus")["data"]["prometheus.yml"])
    (job,) = config["scrape_configs"]
    assert job["static_configs"] == [{"targets": ["shop-otel-collector:8888"]}]
    collector = yaml.safe_load(manifests.one("ConfigMap", "shop-otel-collector")["data"]["config.yaml"])
    (reader,) = collector["service"]["telemetry"]["metrics"]["readers"]
    assert reader["pull"]["exporter"]["prometheus"] == {"host": "0.0.0.0", "port": 8888}
    assert 8888 in [port["port"] for port in manifests.one("Service", "shop-otel-collector")["spec"]["ports"]]


def test_a_service_monitor_s_labels_are_added_to_the_chart_s(render: Any) -> None:
    monitor = {"enabled": True, "labels": {"release": "prometheus", "app.kubernetes.io/part-of": "x"}}
    manifests = render({"observability": {"enabled": True, "serviceMonitor": monitor}})
    labels = manifests.one("ServiceMonitor", "shop-otel-collector")["metadata"]["labels"]
    assert labels["release"] == "prometheus"
    assert labels["app.kubernetes.io/part-of"] == "shop"
