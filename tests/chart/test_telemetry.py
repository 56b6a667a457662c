"""Where telemetry goes, what it is attributed to, how it is sampled, and what Prometheus scrapes."""

import re
from typing import Any

import pytest
from opentelemetry.sdk.resources import OTELResourceDetector

from chassis.telemetry import semconv

BUNDLE = {"observability": {"enabled": True}}


def attributes(manifests: Any, name: str) -> dict[str, str]:
    pairs = manifests.environment(name)["OTEL_RESOURCE_ATTRIBUTES"].split(",")
    return dict(pair.partition("=")[::2] for pair in pairs)


def test_resource_attributes_are_added_replaced_and_arrive_as_they_are_written(
    render: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = {"service.version": "custom", "share": "50%", "odd": " a=b;c+d, e\n$(POD_NAME)é"}
    given = render({"telemetry": {"endpoint": "http://c:4317", "resourceAttributes": own}}).environment("cart")
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", given["OTEL_RESOURCE_ATTRIBUTES"])
    assert OTELResourceDetector().detect().attributes == {
        **own,
        "service.instance.id": "$(POD_NAME)",
        "k8s.pod.name": "$(POD_NAME)",
        "k8s.namespace.name": "shop",
        "k8s.node.name": "$(NODE_NAME)",
        "k8s.deployment.name": "shop-cart",
        "shop.release": "shop",
    }


def test_prometheus_makes_labels_of_the_attributes_that_pods_have(render: Any) -> None:
    manifests = render(BUNDLE)
    promoted = manifests.config("prometheus", "prometheus.yml")["otlp"]["promote_resource_attributes"]
    assert set(promoted) == {*attributes(manifests, "cart"), "k8s.cronjob.name", "service.name", "service.namespace"}


def test_the_dimensions_of_span_metrics_have_the_names_that_spans_have(render: Any) -> None:
    dimensions = render(BUNDLE).config("otel-collector", "config.yaml")["connectors"]["spanmetrics"]["dimensions"]
    names = [dimension["name"] for dimension in dimensions]
    assert names == [semconv.RPC_METHOD, semconv.RPC_STATUS, semconv.ERROR_TYPE]


def test_without_slos_no_trace_is_kept_for_its_duration(render: Any, values: Any) -> None:
    manifests = render({**BUNDLE, "telemetry": {"sampling": "tail"}, "slos": dict.fromkeys(values["slos"])})
    processor = manifests.config("otel-collector", "config.yaml")["processors"]["tail_sampling"]
    assert [policy["name"] for policy in processor["policies"]] == ["errors", "requested", "share"]


def test_every_component_of_a_pipeline_is_configured(render: Any, matrix_values: dict[str, Any]) -> None:
    manifests = render(matrix_values)
    if not manifests.has("ConfigMap", "shop-otel-collector"):
        return
    config = manifests.config("otel-collector", "config.yaml")
    pipelines = config["service"]["pipelines"].values()
    for kind in ("receivers", "processors", "exporters"):
        configured = {*config[kind], *(config["connectors"] if kind != "processors" else ())}
        assert {name for pipeline in pipelines for name in pipeline[kind]} == configured, kind


def test_without_loki_grafana_has_no_links_to_it(render: Any) -> None:
    manifests = render({"observability": {"enabled": True, "loki": {"enabled": False}}})
    assert not [found for found in manifests.objects if "loki" in found["metadata"]["name"]]
    assert "loki" not in str(manifests.config("grafana", "datasources.yaml"))


def test_links_from_traces_query_metrics_that_services_export(render: Any) -> None:
    provisioned = render(BUNDLE).config("grafana", "datasources.yaml")["datasources"]
    (traces,) = (source["jsonData"] for source in provisioned if source["uid"] == "jaeger")
    exported = {series for metric in semconv.METRICS for series in metric.series}
    for query in traces["tracesToMetrics"]["queries"]:
        assert set(re.findall(r"\w+(?=\{)", query["query"])) <= exported
