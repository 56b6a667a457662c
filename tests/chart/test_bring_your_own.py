"""The shop beside kube-prometheus-stack, Loki and Tempo: what charts/shop/bring-your-own.md says works."""

import re
import textwrap
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
CHART = ROOT / "charts" / "shop"
PAGE = (CHART / "bring-your-own.md").read_text()
VALUES = yaml.safe_load((CHART / "ci" / "bring-your-own-values.yaml").read_text())


@pytest.mark.parametrize(("scraped", "stored"), [("1.0", "1"), ("10.0", "10"), ("0.5", "0.5"), ("+Inf", "+Inf")])
def test_bounds_of_buckets_are_written_as_by_the_otlp_receiver(render: Any, scraped: str, stored: str) -> None:
    monitor = render(VALUES).one("ServiceMonitor", "shop-otel-collector")["spec"]
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
    blocks = map(textwrap.dedent, re.findall(r"^ *```yaml\n(.*?)^ *```$", PAGE, re.MULTILINE | re.DOTALL))
    values = next(block for block in map(yaml.safe_load, blocks) if "grafana" in block)
    exemplars = values["grafana"]["sidecar"]["datasources"]["exemplarTraceIdDestinations"]
    assert exemplars == {"datasourceUid": "tempo", "traceIdLabelName": "trace_id"}
