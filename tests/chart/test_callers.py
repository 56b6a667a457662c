"""Who calls what: from one table in the values follow the services' own checks and the policies of meshes."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from jsonschema.validators import validator_for  # type: ignore[import-untyped]

from shop_kit.reflection import contract, full_name

ROOT = Path(__file__).resolve().parents[2]
HEALTH = "grpc.health.v1.Health/*"
IN_IMAGES = ["load", "probe", "orders", "mesh_callers", "recommendations"]  # of tests/e2e
SCHEMAS = json.loads((ROOT / "tests/chart/schemas/meshes.json").read_text())
VALIDATORS = {kind: validator_for(schema)(schema) for kind, schema in SCHEMAS.items() if kind != "$comment"}
GATEWAY = "spiffe://cluster.local/ns/gateways/sa/public"
CALLERS = {GATEWAY: {"cart": ["AddItem"], "payment": ["PaymentLedger/ListCharges"]}}
MESHED = {
    "tls": {"callers": CALLERS},
    "load": {"enabled": True},
    "networkPolicy": {
        "ingressFrom": [{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "gateways"}}}]
    },
}

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


def expected_table(values: dict[str, Any]) -> Table:
    """Return the methods by identity of the caller and callee, those of CALLERS included."""
    found = {(identity(caller), callee): methods for (caller, callee), methods in table_of(values).items()}
    return found | {(GATEWAY, callee): full_names(callee, methods) for callee, methods in CALLERS[GATEWAY].items()}


@pytest.mark.parametrize("issuer", ["existing", "authority"])
def test_each_service_allows_what_the_values_say(
    render: Any, values: dict[str, Any], grpc_services: list[str], issuer: str
) -> None:
    manifests = render({"tls": {"enabled": True, "callers": CALLERS, "issuer": issuer}})
    allowed: Table = {}
    for name in grpc_services:
        of_callers = json.loads(manifests.environment(name)["ALLOWED_CALLS"])
        allowed |= {(caller, name): set(methods) for caller, methods in of_callers.items()}
        assert all(len(set(methods)) == len(methods) for methods in of_callers.values())
    by_dns_name = {
        (f"shop-{caller}.shop.svc.cluster.local", to): names for (caller, to), names in table_of(values).items()
    }
    assert allowed == expected_table(values) | (by_dns_name if issuer == "authority" else {})


def test_identities_follow_the_trust_domain_the_namespace_and_the_release_and_entries_add_up(render: Any) -> None:
    storefront = "spiffe://example.org/ns/there/sa/eu-storefront"
    callers = {storefront: {"ad": ["AdJournal/ScanAds", "GetAds"]}}
    services = {"ad": {"internal": True}}
    values = {"tls": {"enabled": True, "trustDomain": "example.org", "callers": callers}, "services": services}
    deployment = render(values, name="eu", namespace="there").one("Deployment", "eu-ad")
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    allowed = next(variable["value"] for variable in container["env"] if variable["name"] == "ALLOWED_CALLS")
    assert json.loads(allowed) == {
        storefront: ["shop.internal.AdJournal/ScanAds", "shop.AdService/GetAds"],
        "eu-storefront.there.svc.cluster.local": ["shop.AdService/GetAds"],
    }


def test_every_declared_or_exposed_method_exists_and_the_pods_of_helm_test_call_theirs(
    values: dict[str, Any], grpc_services: list[str]
) -> None:
    methods = {full_name(method) for method in contract()}
    assert set().union(*table_of(values).values()) <= methods
    for name in grpc_services:
        assert full_names(name, (values["services"][name] or {}).get("exposed", [])) <= methods
    stubs = re.findall(r"\.([A-Z]\w+)\(", (ROOT / "charts/shop/files/tests/order.py").read_text())
    called = {method for found in values["tests"]["calls"].values() for method in found}
    assert set(stubs) & {method.name for method in contract()} == called


def test_scripts_that_run_in_images_check_without_assert() -> None:
    # The images run Python with PYTHONOPTIMIZE=2, which drops it.
    scripts = [*ROOT.glob("charts/shop/files/tests/*.py"), *(ROOT / f"tests/e2e/{name}.py" for name in IN_IMAGES)]
    assert [path.name for path in scripts if re.search(r"^\s*assert ", path.read_text(), re.MULTILINE)] == []


@pytest.mark.parametrize("caller", ["reconciliation", "storefront"])
def test_who_only_looks_at_records_may_change_none(values: dict[str, Any], caller: str) -> None:
    client = values[caller] if caller in values else values["services"][caller]
    methods = {method for methods in client["internalCalls"].values() for method in methods}
    changing = {method for method in methods if not re.search(r"/(Get|Find|List|Scan|Quote)", method)}
    assert changing <= {"CartLines/SetQuantity", "OrderJournal/RecordMismatches"}


def mesh_objects(manifests: Any) -> list[dict[str, Any]]:
    """Return what is for a mesh alone, after a check by its schemas."""
    found = [each for each in manifests.objects if f"{each['apiVersion']} {each['kind']}" in SCHEMAS]
    for each in found:
        VALIDATORS[f"{each['apiVersion']} {each['kind']}"].validate(each)
    names = [(each["apiVersion"], each["kind"], each["metadata"]["name"]) for each in found]
    assert len(set(names)) == len(names)
    return found


def of_labels(selector: dict[str, Any]) -> str:
    assert selector["matchLabels"]["app.kubernetes.io/instance"] == "shop"
    return str(selector["matchLabels"]["app.kubernetes.io/name"])


def servers_of(values: dict[str, Any]) -> Table:
    """Return the peers of servers that have no methods: accounts of the release, and namespaces of gateways."""
    http = [name for name, entry in values["services"].items() if (entry or {}).get("protocol") == "http"]
    table: Table = {("gateways", name): set() for name in http} | {(identity("test"), name): set() for name in http}
    table[identity("load-generator"), "storefront"] = set()
    for name, entry in values["services"].items():
        if store := (entry or {}).get("store"):
            table[identity(name), store] = set()
    return table


def istio_table(manifests: Any) -> Table:
    """Return the methods that Istio's policies allow by caller and callee; none for all connections."""
    found: Table = {}
    for policy in mesh_objects(manifests):
        if policy["kind"] != "AuthorizationPolicy":
            continue
        spec = policy["spec"]
        assert spec["action"] == "ALLOW"  # a workload with such a policy denies all else
        if "selector" in spec:
            target = of_labels(spec["selector"])
        else:
            ((target),) = (ref["name"].removeprefix("shop-").removesuffix("-clusterip") for ref in spec["targetRefs"])
        for rule in spec["rules"]:
            operations = rule.get("to", [{"operation": {"paths": []}}])
            methods = {path.removeprefix("/") for to in operations for path in to["operation"]["paths"]}
            for source in rule["from"]:
                callers = [f"spiffe://{name}" for name in source["source"].get("principals", ())]
                for caller in [*callers, *source["source"].get("namespaces", ())]:
                    found[caller, target] = methods
    return found


@pytest.mark.parametrize("mode", ["sidecar", "ambient"])
def test_istio_allows_the_same_calls_connections_and_checks_of_health_by_mutual_tls(
    render: Any, values: dict[str, Any], grpc_services: list[str], mode: str
) -> None:
    expected = expected_table(values) | servers_of(values)
    expected |= {("spiffe://*", name): {HEALTH} for name in grpc_services}
    if mode == "ambient":  # where methods are known: pods accept nothing but its connections
        expected |= {(identity("waypoint"), name): set() for name in grpc_services}
    manifests = render({**MESHED, "mesh": mode})
    assert istio_table(manifests) == expected
    spec = manifests.one("PeerAuthentication", "shop-services")["spec"]
    assert spec["mtls"] == {"mode": "STRICT"}
    labels = spec["selector"]["matchLabels"].items()
    selected = {name for name, pod in manifests.pod_templates() if labels <= pod["metadata"]["labels"].items()}
    assert selected == {f"shop-{name}" for name in values["services"]}


def linkerd_table(manifests: Any) -> Table:
    """Return the methods that Linkerd's policies allow by caller and callee; none for all connections."""
    by_name = {(each["kind"], each["metadata"]["name"]): each["spec"] for each in mesh_objects(manifests)}
    found: Table = {}
    for kind, name in by_name:
        if kind != "AuthorizationPolicy":
            continue
        (required,), target = by_name[kind, name]["requiredAuthenticationRefs"], by_name[kind, name]["targetRef"]
        to, methods = by_name[target["kind"], target["name"]], set()
        if target["kind"] == "GRPCRoute":
            ((match,),) = (rule["matches"] for rule in to["rules"])
            methods = {f"{match['method']['service']}/{match['method'].get('method', '*')}"}
            to = by_name["Server", to["parentRefs"][0]["name"]]
        for peer in by_name[required["kind"], required["name"]].get("identityRefs", [{}]):
            caller = f"spiffe://cluster.local/ns/{peer['namespace']}/sa/{peer['name']}" if "namespace" in peer else ""
            caller = caller or peer.get("name", "spiffe://*")
            found.setdefault((caller, of_labels(to["podSelector"])), set()).update(methods)
    return found


def test_linkerd_allows_the_same_calls_connections_and_checks_of_health(
    render: Any, values: dict[str, Any], grpc_services: list[str]
) -> None:
    manifests = render({**MESHED, "mesh": "sidecar", "meshPolicies": "linkerd"})
    assert linkerd_table(manifests) == expected_table(values) | servers_of(values) | {
        ("spiffe://*", name): {HEALTH} for name in grpc_services
    }
    servers = [each["spec"] for each in mesh_objects(manifests) if each["kind"] == "Server"]
    assert {server["accessPolicy"] for server in servers} == {"deny"}
    ports = {(of_labels(server["podSelector"]), server["port"]) for server in servers}
    containers = {
        (pod["metadata"]["labels"]["app.kubernetes.io/name"], port["name"])
        for _, pod in manifests.pod_templates()
        for container in pod["spec"]["containers"]
        for port in container.get("ports", ())
        if pod["metadata"]["labels"]["app.kubernetes.io/component"] in {"service", "database", "cache"}
    }
    assert ports == containers
