"""Who calls what: from one table in the values follow the services' own checks and the policies of meshes."""

import json
import re
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from google.protobuf import descriptor_pool

PROTOS = Path(__file__).resolve().parents[2] / "protos"
GATEWAY = "spiffe://cluster.local/ns/gateways/sa/public"
CALLERS = {GATEWAY: {"cart": ["AddItem"], "payment": ["PaymentLedger/ListCharges"]}}
TLS = {"tls": {"enabled": True, "callers": CALLERS}}

Table = dict[tuple[str, str], set[str]]


def full_names(callee: str, methods: list[str]) -> set[str]:
    public = f"shop.{callee.title().replace('-', '')}Service"
    return {f"shop.internal.{name}" if "/" in name else f"{public}/{name}" for name in methods}


def table_of(values: dict[str, Any]) -> Table:
    """Return the full names of the methods in the values by caller and callee."""
    clients = {**values["services"], "reconciliation": values["reconciliation"], "test": values["tests"]}
    table: Table = {}
    for caller, entry in clients.items():
        for calls in ((entry or {}).get("calls", {}), (entry or {}).get("internalCalls", {})):
            for callee, methods in calls.items():
                table.setdefault((caller, callee), set()).update(full_names(callee, methods))
    return table


def identity(caller: str) -> str:
    return caller if ":" in caller else f"spiffe://cluster.local/ns/shop/sa/shop-{caller}"


def test_each_service_allows_what_the_values_say(render: Any, values: dict[str, Any], grpc_services: list[str]) -> None:
    table = table_of(values) | {
        (GATEWAY, name): full_names(name, methods) for name, methods in CALLERS[GATEWAY].items()
    }
    manifests = render(TLS)
    for name in grpc_services:
        allowed = json.loads(manifests.environment(name)["ALLOWED_CALLS"])
        expected = {identity(caller): methods for (caller, callee), methods in table.items() if callee == name}
        assert {caller: set(methods) for caller, methods in allowed.items()} == expected
        assert all(len(set(methods)) == len(methods) for methods in allowed.values())


def test_without_tls_nothing_is_checked_and_http_services_check_nothing(render: Any) -> None:
    assert "ALLOWED_CALLS" not in render().environment("payment")
    assert "ALLOWED_CALLS" not in render(TLS).environment("storefront")


def test_identities_follow_the_trust_domain_the_namespace_and_the_release(render: Any) -> None:
    values = {"tls": {"enabled": True, "trustDomain": "example.org"}}
    (deployment,) = [
        found
        for found in render(values, name="eu", namespace="there").all("Deployment")
        if found["metadata"]["name"] == "eu-ad"
    ]
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    allowed = next(variable["value"] for variable in container["env"] if variable["name"] == "ALLOWED_CALLS")
    assert json.loads(allowed).keys() == {"spiffe://example.org/ns/there/sa/eu-storefront"}


def test_pods_run_as_the_callers_of_the_table(render: Any, values: dict[str, Any]) -> None:
    accounts = {pod["spec"]["serviceAccountName"] for _, pod in render().pod_templates()}
    assert {f"shop-{caller}" for caller, _ in table_of(values)} <= accounts


def test_every_method_of_the_table_exists(values: dict[str, Any]) -> None:
    for proto in PROTOS.glob("shop*/*.proto"):
        import_module(f"{proto.parent.name}.{proto.stem}_pb2")
    pool = descriptor_pool.Default()
    for methods in table_of(values).values():
        for method in methods:
            pool.FindMethodByName(method.replace("/", "."))  # raises KeyError


@pytest.mark.parametrize("caller", ["reconciliation", "storefront"])
def test_who_only_looks_at_records_may_change_none(values: dict[str, Any], caller: str) -> None:
    client = values[caller] if caller in values else values["services"][caller]
    methods = {method for methods in client["internalCalls"].values() for method in methods}
    changing = {method for method in methods if not re.search(r"/(Get|Find|List|Scan|Quote)", method)}
    assert changing <= {"CartLines/SetQuantity"}
