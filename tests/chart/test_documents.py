"""What documents of the chart say: ports, connections, stores of one's own; a runbook for each alert.

The commands of runbooks: tests/system/test_documented_commands.py.
"""

import re
import shlex
import textwrap
from pathlib import Path
from typing import Any

import pytest
import yaml

CHART = Path(__file__).resolve().parents[2] / "charts/shop"
README, SCALING, BRING_YOUR_OWN = (
    (CHART / name).read_text() for name in ("README.md", "docs/scaling.md", "bring-your-own.md")
)


def test_components_in_the_readme_have_the_ports_of_their_services(render: Any) -> None:
    everything = {"load": {"enabled": True}, "observability": {"enabled": True, "alertmanager": {"enabled": True}}}
    services = render(everything).all("Service")
    rendered = {(found["metadata"]["name"], str(port["port"])) for found in services for port in found["spec"]["ports"]}
    documented = {(f"shop-{name}", port) for name, port in re.findall(r"`<release>-([a-z-]+):(\d+)`", README)}
    assert {("shop-storefront", "8080"), ("shop-grafana", "3000")} < documented <= rendered


def test_connections_are_those_of_the_values(values: dict[str, Any]) -> None:
    (accepted,) = re.findall(r"PostgreSQL\s+accepts\s+([\d,]*\d)", SCALING)
    assert int(accepted.replace(",", "")) == values["postgresql"]["settings"]["max_connections"]


@pytest.mark.parametrize(("scraped", "stored"), [("1.0", "1"), ("10.0", "10"), ("0.5", "0.5"), ("+Inf", "+Inf")])
def test_bounds_of_buckets_are_written_as_by_the_otlp_receiver(render: Any, scraped: str, stored: str) -> None:
    monitor = render(yaml.safe_load((CHART / "ci/bring-your-own-values.yaml").read_text())).one(
        "ServiceMonitor", "shop-otel-collector"
    )["spec"]
    (endpoint,) = [endpoint for endpoint in monitor["endpoints"] if endpoint["port"] == "shop-metrics"]
    (rule,) = [rule for rule in endpoint["metricRelabelings"] if rule.get("targetLabel") == "le"]
    match = re.fullmatch(rule["regex"], scraped)
    assert rule["sourceLabels"] == ["le"]
    assert (match.expand(rule["replacement"].replace("$", "\\")) if match else scraped) == stored


def test_the_data_sources_link_to_each_other_in_both_directions() -> None:
    config_map = yaml.safe_load((CHART / "docs/data-sources.yaml").read_text())
    assert config_map["metadata"]["labels"] == {"grafana_datasource": "1"}
    provisioned = yaml.safe_load(config_map["data"]["shop.yaml"])
    sources = {source["uid"]: source["jsonData"] for source in provisioned["datasources"]}
    assert [field["datasourceUid"] for field in sources["loki"]["derivedFields"]] == ["tempo"]
    assert sources["tempo"]["tracesToLogsV2"]["datasourceUid"] == "loki"
    assert sources["tempo"]["tracesToMetrics"]["datasourceUid"] == "prometheus"
    blocks = map(textwrap.dedent, re.findall(r"^ *```yaml\n(.*?)^ *```$", BRING_YOUR_OWN, re.MULTILINE | re.DOTALL))
    values = next(block for block in map(yaml.safe_load, blocks) if "grafana" in block)
    exemplars = values["grafana"]["sidecar"]["datasources"]["exemplarTraceIdDestinations"]
    assert exemplars == {"datasourceUid": "tempo", "traceIdLabelName": "trace_id"}


PAGES = sorted((CHART / "runbooks").glob("*.md"))
SECTIONS = ["What it means", "How to look", "What to do", "How to see it is over"]
OBSERVABILITY = {"observability": {"enabled": True}}


def arguments() -> set[str]:
    """Return the words of the commands of all pages."""
    blocks = [
        block
        for page in PAGES
        for block in re.findall(r"^```sh\n(.*?)\n```$", page.read_text(), re.MULTILINE | re.DOTALL)
    ]
    return {word for block in blocks for word in shlex.split(block)}


def test_every_alert_has_a_page_of_four_sections(rules: list[Any]) -> None:
    assert {page.stem for page in PAGES} == {rule["alert"] for rule in rules if "alert" in rule}
    for page in PAGES:
        sections = re.split(r"^## (.+)$", page.read_text(), flags=re.MULTILINE)
        assert sections[0].startswith(f"# {page.stem}\n")
        assert sections[1::2] == SECTIONS, page
        assert all(text.strip() for text in sections[2::2]), page


def test_objects_in_the_commands_are_those_of_the_chart(render: Any) -> None:
    objects = {f"{found['kind'].lower()}/{found['metadata']['name']}" for found in render(OBSERVABILITY).objects}
    workloads = re.compile(r"(deployment|statefulset|service|cronjob)/")
    assert {argument for argument in arguments() if workloads.match(argument)} <= objects
