"""compose.yaml runs what the chart installs, with the same variables."""

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import yaml

from shop_cli.local.workspace import default_ports, discover

ROOT = Path(__file__).resolve().parents[2]
COMPOSE = yaml.safe_load((ROOT / "compose.yaml").read_text())["services"]
# Defaults are right without rolling updates, and one variable is part of another.
OF_PODS_ONLY = {"LOG_LEVEL", "MAX_CONNECTION_AGE_SECONDS", "DRAIN_SECONDS", "GRACE_SECONDS", "VALKEY_PASSWORD"}
OF_TRACES = {"OTEL_EXPORTER_OTLP_ENDPOINT", "TRACES_URL"}
VALUES = {"services": {"storefront": {"url": "http://localhost:8080"}}, "load": {"enabled": True}}


def without_release(text: str) -> str:
    """Return a text of the chart with the names of Compose, and with a variable in place of each secret."""
    text = re.sub(r",[\w-]+\.shop(\.svc(\.cluster\.local)?)?(?=,|$)", "", text)
    text = re.sub(r"\$\((VALKEY_PASSWORD|REDISCLI_AUTH)\)", "<VALKEY_PASSWORD>", text)
    return re.sub(r"\bshop-", "", text)


def in_the_chart(container: dict[str, Any]) -> dict[str, str]:
    """Return the variables of a container; `<KEY>` stands for one from a Secret."""
    found = {}
    for variable in container["env"]:
        key = variable.get("valueFrom", {}).get("secretKeyRef", {}).get("key", "")
        found[variable["name"]] = without_release(variable.get("value", f"<{key.upper().replace('-', '_')}>"))
    return {name: value for name, value in found.items() if name not in OF_PODS_ONLY}


def secrets_marked(text: str) -> str:
    """Return a text of Compose with `<NAME>` for each secret, whose default says that it is none."""
    return re.sub(r"\$\{(\w+):-for-development-and-known-to-everybody\}", r"<\1>", text)


def in_compose(service: str) -> dict[str, str]:
    environment = COMPOSE[service]["environment"]
    return {name: secrets_marked(value) for name, value in environment.items() if name not in OF_TRACES}


@pytest.mark.parametrize("service", [program.name for program in discover(ROOT)])
def test_a_service_in_compose_has_the_environment_that_the_chart_gives_it(render: Any, service: str) -> None:
    assert in_compose(service) == in_the_chart(render(VALUES).container(service))


def test_compose_runs_what_the_chart_installs_as_its_users_on_a_read_only_root(render: Any) -> None:
    pods = {name.removeprefix("shop-"): pod["spec"] for name, pod in render(VALUES).pod_templates()}
    pods = {name: pod for name, pod in pods.items() if not name.startswith(("test-", "reconciliation"))}
    assert COMPOSE.keys() - {"provision", "jaeger"} == pods.keys()
    for name, pod in pods.items():
        image = pod["containers"][0]["image"].partition("@")[0]
        assert re.sub(r"\$\{\w+:-([^}]*)\}", r"\1", COMPOSE[name]["image"]) == image
        user = pod["securityContext"]
        assert COMPOSE[name]["user"] == f"{user['runAsUser']}:{user['runAsGroup']}"
    for service in COMPOSE.values():
        assert (service["read_only"], service["cap_drop"]) == (True, ["ALL"])


@pytest.mark.parametrize("store", ["postgresql", "valkey"])
def test_a_store_in_compose_has_the_arguments_of_the_chart(render: Any, store: str) -> None:
    container = render().one("StatefulSet", f"shop-{store}")["spec"]["template"]["spec"]["containers"][0]
    assert shlex.split(secrets_marked(COMPOSE[store]["command"])) == [
        without_release(argument) for argument in container["args"]
    ]
    given = {**in_compose("provision"), **in_compose(store)}
    assert in_the_chart(container).items() <= given.items()


def test_a_service_of_compose_that_migrates_its_database_starts_after_it_was_made(database_services: list[str]) -> None:
    for service in database_services:
        assert COMPOSE[service]["depends_on"] == {"provision": {"condition": "service_completed_successfully"}}
        assert service.replace("-", "_") in COMPOSE["provision"]["environment"]["ROLES"].split()


def test_compose_publishes_local_ports_on_loopback_only() -> None:
    published = [port.split(":") for service in COMPOSE.values() for port in service.get("ports", ())]
    assert {host for host, _, _ in published} == {"127.0.0.1"}
    assert {int(port) for _, port, _ in published} == {*default_ports(discover(ROOT)).values(), 8089, 16686}
