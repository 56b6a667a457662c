"""compose.yaml, which tests/repository/compose.py makes of what the chart renders, runs all of it as safely."""

import re
from pathlib import Path
from typing import Any

import yaml

from shop_cli.local.workspace import default_ports, discover

ROOT = Path(__file__).resolve().parents[2]
COMPOSE = yaml.safe_load((ROOT / "compose.yaml").read_text())["services"]


def test_compose_runs_what_the_chart_installs_as_its_users_on_a_read_only_root(render: Any) -> None:
    manifests = render({"load": {"enabled": True}})
    workloads = {found["metadata"]["name"] for kind in ("Deployment", "StatefulSet") for found in manifests.all(kind)}
    pods = {name.removeprefix("shop-"): pod["spec"] for name, pod in manifests.pod_templates() if name in workloads}
    assert COMPOSE.keys() - {"provision", "jaeger"} == pods.keys()
    for name, pod in pods.items():
        image = pod["containers"][0]["image"].partition("@")[0]
        assert re.sub(r"\$\{\w+:-([^}]*)\}", r"\1", COMPOSE[name]["image"]) == image
        user = pod["securityContext"]
        assert COMPOSE[name]["user"] == f"{user['runAsUser']}:{user['runAsGroup']}"
    for service in COMPOSE.values():
        assert (service["read_only"], service["cap_drop"]) == (True, ["ALL"])


def test_compose_publishes_local_ports_on_loopback_only() -> None:
    published = [port.split(":") for service in COMPOSE.values() for port in service.get("ports", ())]
    assert {host for host, _, _ in published} == {"127.0.0.1"}
    assert {int(port) for _, port, _ in published} == {*default_ports(discover(ROOT)).values(), 8089, 16686}
