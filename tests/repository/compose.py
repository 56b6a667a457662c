"""Print `compose.yaml`: `compose.in.yaml`, with the chart's values in the place of what it has in capitals."""

import json
import re
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
# What the chart derives from `url` and from `observability`.
DERIVED = {
    "email": {"STOREFRONT_URL": "http://localhost:8080"},
    "storefront": {"TRACES_URL": "${TRACES:+http://jaeger:16686}"},
}
# What a service with a store waits for.
STORES = {
    "postgresql": "{provision: {condition: service_completed_successfully}}",
    "valkey": "{valkey: {condition: service_healthy}}",
}


def variables(program: Program, entry: dict[str, Any]) -> dict[str, Any]:
    """Return the environment of a service, as the chart makes it."""
    of_grpc = {"PORT": 50051, "HEALTH_PORT": 50053}
    of_http = {"PORT": entry.get("port", VALUES["defaults"]["port"])}
    found: dict[str, Any] = of_grpc if program.protocol == "grpc" else of_http
    found |= {"INTERNAL_PORT": 50052} if program.internal_port else {}
    for key, suffix, port in (("calls", "ADDR", 50051), ("internalCalls", "INTERNAL_ADDR", 50052)):
        found |= {f"{peer.upper().replace('-', '_')}_{suffix}": f"{peer}:{port}" for peer in entry.get(key, ())}
    if program.protocol == "http":
        found["ALLOWED_HOSTS"] = f"localhost,127.0.0.1,[::1],{program.name}"
    if entry.get("store") == "postgresql":
        role = program.name.replace("-", "_")
        found["DATABASE_URL"] = f"postgresql://{role}@postgresql:5432/{role}"
        found |= {"PGPASSWORD": "SECRET_DATABASE_PASSWORD", "PGCONNECT_TIMEOUT": 5}
    if entry.get("store") == "valkey":
        found["REDIS_URL"] = "redis://:SECRET_VALKEY_PASSWORD@valkey:6379/0"
    found |= {secret: f"SECRET_{secret}" for secret in program.secrets}
    found |= {**DERIVED.get(program.name, {}), **entry.get("env", {})}
    return {**found, "OTEL_EXPORTER_OTLP_ENDPOINT": "${TRACES:+http://jaeger:4317}"}


def jaeger_config() -> str:
    """Return the chart's configuration of Jaeger, and pipelines that discard what is not traces."""
    template = (ROOT / "charts/shop/files/observability/jaeger.yaml").read_text()
    config = yaml.safe_load(re.sub(r"\{\{.*?\}\}", str(VALUES["observability"]["jaeger"]["maxTraces"]), template))
    config["exporters"]["debug"] = {}
    for signal in ("metrics", "logs"):
        config["service"]["pipelines"][signal] = {"receivers": ["otlp"], "exporters": ["debug"]}
    return textwrap.fill(json.dumps(config), 120, subsequent_indent=" " * 8, break_on_hyphens=False)


def own_image(name: str) -> str:
    return f"${{REGISTRY:-not-published.invalid/shop}}/{name}:${{TAG:-{TAG}}}"


def service(program: Program, entry: dict[str, Any]) -> str:
    name, environment = program.name, variables(program, entry)
    folder = next(path for path in (f"services/{name}", name) if (ROOT / path).exists())
    ports = [f"127.0.0.1:{program.port}:{environment['PORT']}"]
    ports += [f"127.0.0.1:{program.internal_port}:50052"] if program.internal_port else []
    lines = [f"  {name}:", f"    <<: *{program.protocol}", f"    image: {own_image(name)}"]
    lines += [f"    build: {{context: ., args: {{SERVICE: {name}, FOLDER: {folder}}}}}", "    environment:"]
    lines += [f'      {key}: "{value}"' for key, value in environment.items()]
    lines += [f"    ports: {json.dumps(ports)}"]
    if "store" in entry:
        lines += [f"    depends_on: {STORES[entry['store']]}"]
    return "".join(f"{line}\n" for line in lines)


def main() -> None:
    entries = {program: VALUES["services"].get(program.name) or {} for program in discover(ROOT)}
    databases = (program.name for program, entry in entries.items() if entry.get("store") == "postgresql")
    roles = sorted(name.replace("-", "_") for name in databases)
    passwords = "\n      ".join(f'{role}_PASSWORD: "SECRET_DATABASE_PASSWORD"' for role in roles)
    images = {"jaeger": VALUES["observability"]["jaeger"], **{name: VALUES[name] for name in STORES}}
    # Without its digest, so that on a developer's machine a local image may take its place.
    image_of = "{registry}/{repository}:{tag}".format_map
    replaced = {
        **{f"IMAGE_OF_{name.upper()}": image_of(values["image"]).partition("@")[0] for name, values in images.items()},
        "IMAGE_OF_LOAD_GENERATOR": own_image("load-generator"),
        "JAEGER_CONFIG": jaeger_config(),
        "MAX_CONNECTIONS": str(VALUES["postgresql"]["settings"]["max_connections"]),
        "MAX_MEMORY": VALUES["valkey"]["maxMemory"],
        "ROLES_OF_SERVICES": " ".join(roles),
        "# PASSWORDS_OF_ROLES": passwords,
        "  # SERVICES\n": "".join(service(program, entry) for program, entry in entries.items()),
    }
    text = TEMPLATE
    for name, value in replaced.items():
        text = text.replace(name, value)
    # Passwords and keys are variables with defaults for development.
    sys.stdout.write(re.sub(r"SECRET_(\w+)", r"${\1:-for-development-and-known-to-everybody}", text))


if __name__ == "__main__":
    main()
