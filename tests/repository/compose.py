"""Print `compose.yaml`: `compose.in.yaml`, with what the chart renders in the place of what it has in capitals."""

import json
import re
import shlex
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import yaml

from shop_cli.local.workspace import Program, discover

ROOT = Path(__file__).parents[2]
TEMPLATE = Path(__file__).with_name("compose.in.yaml").read_text()
VALUES = yaml.safe_load((ROOT / "charts/shop/values.yaml").read_text())
TAG = yaml.safe_load((ROOT / "charts/shop/Chart.yaml").read_text())["appVersion"]
RENDERED = {"services": {"storefront": {"url": "http://localhost:8080"}}}
# Defaults are right without rolling updates, and one variable is part of another.
OF_PODS_ONLY = {"LOG_LEVEL", "MAX_CONNECTION_AGE_SECONDS", "DRAIN_SECONDS", "GRACE_SECONDS", "VALKEY_PASSWORD"}
TRACES = {"OTEL_EXPORTER_OTLP_ENDPOINT": "${TRACES:+http://jaeger:4317}"}
# What a service with a store waits for.
STORES = {
    "postgresql": "{provision: {condition: service_completed_successfully}}",
    "valkey": "{valkey: {condition: service_healthy}}",
}


def rendered_containers() -> dict[str, dict[str, Any]]:
    """Return the container of each service and store that the chart renders, by component."""
    command = (sys.executable, ROOT / "tests/chart/helm.py", ROOT / "charts/shop")
    request = json.dumps(["render", {"values": RENDERED, "name": "shop", "namespace": "shop"}])
    answer = subprocess.run(command, input=f"{request}\n", stdout=subprocess.PIPE, text=True, check=True).stdout
    texts = [text for path, text in json.loads(answer)["result"].items() if path.endswith(".yaml")]
    objects = [found for text in texts for found in yaml.load_all(text, yaml.CSafeLoader) if found]
    return {
        found["metadata"]["name"].removeprefix("shop-"): found["spec"]["template"]["spec"]["containers"][0]
        for found in objects
        if found["kind"] in {"Deployment", "StatefulSet"}
    }


def without_release(text: str) -> str:
    """Return a text of the chart with the names of Compose, and with a variable in place of each secret."""
    text = re.sub(r",[\w-]+\.shop(\.svc(\.cluster\.local)?)?(?=,|$)", "", text)
    text = re.sub(r"\$\((VALKEY_PASSWORD|REDISCLI_AUTH)\)", "SECRET_VALKEY_PASSWORD", text)
    return re.sub(r"\bshop-", "", text)


def variables(container: dict[str, Any]) -> dict[str, str]:
    """Return the environment of a container, with `SECRET_<KEY>` for what the chart keeps in a Secret."""
    found = {}
    for variable in container["env"]:
        key = variable.get("valueFrom", {}).get("secretKeyRef", {}).get("key", "")
        found[variable["name"]] = without_release(variable.get("value", f"SECRET_{key.upper().replace('-', '_')}"))
    return {name: value for name, value in found.items() if name not in OF_PODS_ONLY}


def jaeger_config() -> str:
    """Return the chart's configuration of Jaeger, and pipelines that discard what is not traces."""
    template = (ROOT / "charts/shop/files/observability/jaeger.yaml").read_text()
    config = yaml.safe_load(re.sub(r"\{\{.*?\}\}", str(VALUES["observability"]["jaeger"]["maxTraces"]), template))
    config["exporters"]["debug"] = {}
    for signal in ("metrics", "logs"):
        config["service"]["pipelines"][signal] = {"receivers": ["otlp"], "exporters": ["debug"]}
    return wrapped(json.dumps(config), 8)


def wrapped(text: str, indent: int) -> str:
    return textwrap.fill(without_release(text), 120, subsequent_indent=" " * indent, break_on_hyphens=False)


def own_image(name: str) -> str:
    return f"${{REGISTRY:-not-published.invalid/shop}}/{name}:${{TAG:-{TAG}}}"


def service(program: Program, environment: dict[str, str]) -> str:
    name, store = program.name, (VALUES["services"].get(program.name) or {}).get("store")
    folder = next(path for path in (f"services/{name}", name) if (ROOT / path).exists())
    ports = [f"127.0.0.1:{program.port}:{environment['PORT']}"]
    ports += [f"127.0.0.1:{program.internal_port}:50052"] if program.internal_port else []
    lines = [f"  {name}:", f"    <<: *{program.protocol}", f"    image: {own_image(name)}"]
    lines += [f"    build: {{context: ., args: {{SERVICE: {name}, FOLDER: {folder}}}}}", "    environment:"]
    lines += [f'      {key}: "{value}"' for key, value in environment.items()]
    lines += [f"    ports: {json.dumps(ports)}"]
    lines += [f"    depends_on: {STORES[store]}"] if store else []
    return "".join(f"{line}\n" for line in lines)


def main() -> None:
    containers = rendered_containers()
    environments = {name: variables(container) for name, container in containers.items()}
    environments["storefront"]["TRACES_URL"] = "${TRACES:+http://jaeger:16686}"
    databases = {name: value for name, value in environments["postgresql"].items() if "DATABASE_PASSWORD" in value}
    jaeger = "{registry}/{repository}:{tag}".format_map(VALUES["observability"]["jaeger"]["image"])
    images = {"jaeger": jaeger, **{name: containers[name]["image"] for name in STORES}}
    replaced = {
        # Without its digest, so that on a developer's machine a local image may take its place.
        **{f"IMAGE_OF_{name.upper()}": image.partition("@")[0] for name, image in images.items()},
        **{f"ARGUMENTS_OF_{name.upper()}": wrapped(shlex.join(containers[name]["args"]), 6) for name in STORES},
        "IMAGE_OF_LOAD_GENERATOR": own_image("load-generator"),
        "JAEGER_CONFIG": jaeger_config(),
        "ROLES_OF_SERVICES": environments["postgresql"]["ROLES"],
        "# PASSWORDS_OF_ROLES": "\n      ".join(f'{name}: "{value}"' for name, value in databases.items()),
        "  # SERVICES\n": "".join(service(found, environments[found.name] | TRACES) for found in discover(ROOT)),
    }
    text = TEMPLATE
    for name, value in replaced.items():
        text = text.replace(name, value)
    # Passwords and keys are variables with defaults for development.
    sys.stdout.write(re.sub(r"SECRET_(\w+)", r"${\1:-for-development-and-known-to-everybody}", text))


if __name__ == "__main__":
    main()
