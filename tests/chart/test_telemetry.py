"""Where telemetry goes, what it is attributed to, how it is sampled, and what Prometheus scrapes."""

import re
from typing import Any

import pytest
from opentelemetry.sdk.resources import OTELResourceDetector

from chassis.telemetry import semconv

DIGEST = "sha256:" + "0123456789abcdef" * 4
ENDPOINT = {"telemetry": {"endpoint": "http://c:4317"}}
BUNDLE = {"observability": {"enabled": True}}


def otlp_egress(manifests: Any, name: str) -> list[int]:
    """Return the ports that a service may use to reach any peer."""
    policy = manifests.one("NetworkPolicy", f"shop-{name}")["spec"]
    return [port["port"] for rule in policy["egress"] if "to" not in rule for port in rule["ports"]]


def test_nothing_is_exported_without_an_endpoint(render: Any) -> None:
    assert not [name for name in render().environment("cart") if name.startswith("OTEL_")]


@pytest.mark.parametrize(
    ("endpoint", "address", "port"),
    [
        ("http://collector4317", "http://collector4317:80", 80),
        ("https://collector/v1/traces", "https://collector:443/v1/traces", 443),
        ("https://collector:8443/v1", "https://collector:8443/v1", 8443),
        ("http://[fd00::1]:4318", "http://[fd00::1]:4318", 4318),
        ("http://[fd00::1]", "http://[fd00::1]:80", 80),
    ],
)
def test_the_policy_opens_the_port_that_the_exporter_uses(render: Any, endpoint: str, address: str, port: int) -> None:
    manifests = render({"telemetry": {"endpoint": endpoint}})
    assert manifests.environment("cart")["OTEL_EXPORTER_OTLP_ENDPOINT"] == address
    assert otlp_egress(manifests, "cart") == [port]


def attributes(manifests: Any, name: str) -> dict[str, str]:
    pairs = manifests.environment(name)["OTEL_RESOURCE_ATTRIBUTES"].split(",")
    return dict(pair.partition("=")[::2] for pair in pairs)


def test_the_service_version_is_that_of_the_image(render: Any) -> None:
    images = {"cart": {"tag": "1.2.4", "digest": DIGEST}, "email": {"digest": DIGEST}}
    services = {name: {"image": image} for name, image in images.items()}
    expected = {"cart": "1.2.4", "email": DIGEST, "ad": "1.2.3"}
    manifests = render({**ENDPOINT, "image": {"tag": "1.2.3"}, "services": services})
    assert {name: attributes(manifests, name)["service.version"] for name in expected} == expected


def test_resource_attributes_are_added_replaced_and_arrive_as_they_are_written(
    render: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = {"service.version": "custom", "share": "50%", "odd": " a=b;c+d, e\n$(POD_NAME)é"}
    given = render({"telemetry": {**ENDPOINT["telemetry"], "resourceAttributes": own}}).environment("cart")
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


def test_every_run_of_a_job_reports_as_the_same_instance(render: Any) -> None:
    """The name of a run's pod would make new series, four times an hour."""
    container = render(ENDPOINT).job()["spec"]["containers"][0]
    environment = {variable["name"]: variable.get("value") for variable in container["env"]}
    assert environment["OTEL_RESOURCE_ATTRIBUTES"].split(",") == [
        "k8s.cronjob.name=shop-reconciliation",
        "k8s.namespace.name=shop",
        "service.instance.id=shop-reconciliation",
        "service.version=0.1.0",
        "shop.release=shop",
    ]


def test_prometheus_scrapes_the_metrics_of_the_other_components(render: Any) -> None:
    manifests = render(BUNDLE)
    jobs = manifests.config("prometheus", "prometheus.yml")["scrape_configs"]
    targets = {job["job_name"]: job["static_configs"][0]["targets"] for job in jobs}
    assert targets == {
        "otel-collector": ["shop-otel-collector:8888"],
        "prometheus": ["localhost:9090"],
        "jaeger": ["shop-jaeger:8888"],
        "loki": ["shop-loki:3100"],
    }
    for name, config in (("otel-collector", "config.yaml"), ("jaeger", "config.yaml")):
        (reader,) = manifests.config(name, config)["service"]["telemetry"]["metrics"]["readers"]
        assert reader["pull"]["exporter"]["prometheus"] == {"host": "", "port": 8888}
        assert 8888 in [port["port"] for port in manifests.one("Service", f"shop-{name}")["spec"]["ports"]]


def test_prometheus_makes_labels_of_the_attributes_that_pods_have(render: Any) -> None:
    manifests = render(BUNDLE)
    promoted = manifests.config("prometheus", "prometheus.yml")["otlp"]["promote_resource_attributes"]
    assert set(promoted) == {*attributes(manifests, "cart"), "k8s.cronjob.name", "service.name", "service.namespace"}


def test_the_dimensions_of_span_metrics_have_the_names_that_spans_have(render: Any) -> None:
    dimensions = render(BUNDLE).config("otel-collector", "config.yaml")["connectors"]["spanmetrics"]["dimensions"]
    names = [dimension["name"] for dimension in dimensions]
    assert names == [semconv.RPC_METHOD, semconv.RPC_STATUS, semconv.ERROR_TYPE]


def sampler(manifests: Any) -> dict[str, str]:
    return {name: value for name, value in manifests.environment("cart").items() if "SAMPLER" in name}


SPAN_METRICS = {"receivers": ["otlp"], "processors": ["memory_limiter"], "exporters": ["spanmetrics"]}
"""Spans are counted before they are sampled."""


def test_with_head_sampling_services_send_a_share_and_the_collector_keeps_it(render: Any) -> None:
    manifests = render({**BUNDLE, "telemetry": {"sampleRatio": 0.25}})
    assert sampler(manifests) == {
        "OTEL_TRACES_SAMPLER": "parentbased_traceidratio",
        "OTEL_TRACES_SAMPLER_ARG": "0.25",
    }
    config = manifests.config("otel-collector", "config.yaml")
    assert "tail_sampling" not in str(config)
    assert config["service"]["pipelines"]["traces/span-metrics"] == SPAN_METRICS


def test_with_tail_sampling_services_send_all_and_the_collector_chooses(render: Any, values: Any) -> None:
    collector = {"tailSampling": {"waitSeconds": 20, "maxTraces": 700}}
    telemetry, slos = {"sampling": "tail", "sampleRatio": "0.07"}, {"charge": {"latencySeconds": 0.75}}
    observability = {"enabled": True, "collector": collector}
    manifests = render({"observability": observability, "telemetry": telemetry, "slos": slos})
    assert sampler(manifests) == {"OTEL_TRACES_SAMPLER": "parentbased_always_on"}
    config = manifests.config("otel-collector", "config.yaml")
    processor = config["processors"]["tail_sampling"]
    assert (processor["decision_wait"], processor["num_traces"]) == ("20s", 700)
    policies = {policy["name"]: policy[policy["type"]] for policy in processor["policies"]}
    slow = policies.pop("slow")["span"]
    assert policies == {
        "errors": {"status_codes": ["ERROR"]},
        "requested": {"key": "shop", "values": ["keep"]},
        "share": {"sampling_percentage": 7},
    }
    assert len(slow) == len(values["slos"])
    assert (
        'resource.attributes["service.name"] == "payment" and span.kind == SPAN_KIND_SERVER'
        ' and span.attributes["rpc.method"] == "shop.PaymentService/Charge"'
        ' and span.end_time - span.start_time > Duration("0.75s")'
    ) in slow
    pipelines = config["service"]["pipelines"]
    assert pipelines["traces"]["processors"] == ["memory_limiter", "tail_sampling", "batch"]
    assert pipelines["traces/span-metrics"] == SPAN_METRICS
    assert "spanmetrics" in pipelines["metrics"]["receivers"]


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


def test_logs_go_to_loki_with_bounded_labels(render: Any) -> None:
    manifests = render(BUNDLE)
    config = manifests.config("otel-collector", "config.yaml")
    assert config["service"]["pipelines"]["logs"]["exporters"] == ["otlp_http/loki"]
    assert config["exporters"]["otlp_http/loki"]["endpoint"] == "http://shop-loki:3100/otlp"
    limits = manifests.config("loki", "local-config.yaml")["limits_config"]
    labels = limits["otlp_config"]["resource_attributes"]
    assert labels["ignore_defaults"] is True
    (indexed,) = labels["attributes_config"]
    assert indexed["attributes"] == ["service.name", "service.namespace", "k8s.namespace.name", "shop.release"]


def test_without_loki_the_collector_accepts_logs_and_grafana_has_no_links_to_them(render: Any) -> None:
    manifests = render({"observability": {"enabled": True, "loki": {"enabled": False}}})
    assert not [found for found in manifests.objects if "loki" in found["metadata"]["name"]]
    config = manifests.config("otel-collector", "config.yaml")
    assert config["service"]["pipelines"]["logs"]["exporters"] == ["debug"]
    assert "loki" not in str(manifests.config("grafana", "datasources.yaml"))


def test_grafana_links_traces_logs_and_metrics_both_ways(render: Any) -> None:
    provisioned = render(BUNDLE).config("grafana", "datasources.yaml")["datasources"]
    sources = {source["uid"]: source["jsonData"] for source in provisioned}
    assert [link["datasourceUid"] for link in sources["prometheus"]["exemplarTraceIdDestinations"]] == ["jaeger"]
    assert [field["datasourceUid"] for field in sources["loki"]["derivedFields"]] == ["jaeger"]
    assert sources["jaeger"]["tracesToLogsV2"]["datasourceUid"] == "loki"
    assert sources["jaeger"]["tracesToMetrics"]["datasourceUid"] == "prometheus"
    exported = {series for metric in semconv.METRICS for series in metric.series}
    for query in sources["jaeger"]["tracesToMetrics"]["queries"]:
        assert set(re.findall(r"\w+(?=\{)", query["query"])) <= exported


def test_an_endpoint_s_protocol_headers_and_certificates_are_the_sdk_s_variables(render: Any) -> None:
    telemetry = {
        "endpoint": "https://collector.example.com",
        "protocol": "http/protobuf",
        "headersSecret": {"name": "token"},
        "tls": {"caSecret": {"name": "ca", "key": "bundle.pem"}, "clientSecret": "client"},
        "propagators": "tracecontext,b3",
    }
    manifests = render({"telemetry": telemetry})
    environment = manifests.environment("cart")
    assert environment["OTEL_EXPORTER_OTLP_PROTOCOL"] == "http/protobuf"
    assert environment["OTEL_EXPORTER_OTLP_CERTIFICATE"] == "/etc/shop-otlp/ca.crt"
    assert environment["OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE"] == "/etc/shop-otlp/tls.crt"
    assert environment["OTEL_EXPORTER_OTLP_CLIENT_KEY"] == "/etc/shop-otlp/tls.key"
    assert environment["OTEL_PROPAGATORS"] == "tracecontext,b3"
    headers = manifests.variables("cart")["OTEL_EXPORTER_OTLP_HEADERS"]
    assert headers["valueFrom"] == {"secretKeyRef": {"name": "token", "key": "headers"}}
    for pod in (manifests.pod("cart"), manifests.job()):
        (volume,) = [volume for volume in pod["spec"]["volumes"] if volume["name"] == "otlp-tls"]
        items = [item for source in volume["projected"]["sources"] for item in source["secret"]["items"]]
        assert {item["key"]: item["path"] for item in items} == {
            "bundle.pem": "ca.crt",
            "tls.crt": "tls.crt",
            "tls.key": "tls.key",
        }
        mounts = pod["spec"]["containers"][0]["volumeMounts"]
        assert {"name": "otlp-tls", "mountPath": "/etc/shop-otlp", "readOnly": True} in mounts
