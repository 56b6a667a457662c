"""The chart's README states what the chart renders."""

import re
from pathlib import Path
from typing import Any

README = (Path(__file__).resolve().parents[2] / "charts/shop/README.md").read_text()


def test_the_table_of_components_has_the_names_and_ports_of_the_services(render: Any, values: dict[str, Any]) -> None:
    rendered = {
        f"{found['metadata']['name']}:{port['port']}"
        for found in render(
            {"observability": {"enabled": True, "alertmanager": {"enabled": True}}, "load": {"enabled": True}}
        ).all("Service")
        for port in found["spec"]["ports"]
        if found["metadata"]["name"].removeprefix("shop-") not in values["services"]
    }
    table = README.partition("## What gets installed")[2]
    documented = set()
    for row in table.splitlines():
        if name := re.search(r"`<release>-([a-z-]+):", row):
            documented |= {f"shop-{name[1]}:{port}" for port in re.findall(r":(\d+)`", row)}
    assert documented - {"shop-employee-api:8000", "shop-storefront:8080"} == rendered - {"shop-jaeger:4317"}
    assert "shop-checkout:50051" in table
