"""The rendered network policies, evaluated as a cluster does, allow what services call and store, and nothing more."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

CHART = Path(__file__).resolve().parents[2] / "charts" / "shop"

Labels = dict[str, str]
Edges = set[tuple[str, str, int]]
"""Source, target and port of connections."""
NAMESPACE = {"kubernetes.io/metadata.name": "shop"}
PEER_KEYS = {"ingress": "from", "egress": "to"}


@dataclass(frozen=True)
class Pod:
    name: str
    labels: Labels
    namespace: Labels


def matches(selector: dict[str, Any], labels: Labels) -> bool:
    """Evaluate a label selector; an empty one selects everything."""
    expressions = selector.get("matchExpressions", [])
    assert {expression["operator"] for expression in expressions} <= {"In"}
    return selector.get("matchLabels", {}).items() <= labels.items() and all(
        labels.get(expression["key"]) in expression["values"] for expression in expressions
    )


def peer_matches(peer: dict[str, Any], pod: Pod) -> bool:
    """Return whether a rule's peer includes a pod; without a namespaceSelector, only pods in the policy's namespace."""
    if "ipBlock" in peer:
        return False
    in_namespace = (
        matches(peer["namespaceSelector"], pod.namespace) if "namespaceSelector" in peer else pod.namespace == NAMESPACE
    )
    return in_namespace and matches(peer.get("podSelector", {}), pod.labels)


def allowed(policies: list[Any], direction: str, pods: list[Pod], protocol: str = "TCP") -> tuple[Edges, set[str]]:
    """Return what the rules of one direction allow together, and the pods that no policy selects, which are open."""
    found: Edges = set()
    closed: set[str] = set()
    for policy in policies:
        selector = policy["spec"]["podSelector"]
        for pod in (pod for pod in pods if pod.namespace == NAMESPACE and matches(selector, pod.labels)):
            closed.add(pod.name)
            for rule in policy["spec"][direction]:
                peers = rule.get(PEER_KEYS[direction])
                others = [each for each in pods if not peers or any(peer_matches(peer, each) for peer in peers)]
                ports = {port["port"] for port in rule["ports"] if port.get("protocol", "TCP") == protocol}
                names = [(pod.name, each.name) if direction == "egress" else (each.name, pod.name) for each in others]
                found |= {(*pair, port) for pair in names if pair[0] != pair[1] for port in ports}
    return found, {pod.name for pod in pods} - closed


def edges_of(manifests: Any, *more: Pod, protocol: str = "TCP") -> Edges:
    """Return which pods of the release and some others connect to each other: both sides must allow it."""
    policies, pods = manifests.all("NetworkPolicy"), [*pods_of(manifests), *more]
    egress, open_sources = allowed(policies, "egress", pods, protocol)
    ingress, open_targets = allowed(policies, "ingress", pods, protocol)
    return {
        edge
        for edge in egress | ingress
        if (edge in egress or edge[0] in open_sources) and (edge in ingress or edge[1] in open_targets)
    }


def from_pod(edges: Edges, source: str) -> set[tuple[str, int]]:
    return {(target, port) for name, target, port in edges if name == source}


def pods_of(manifests: Any) -> list[Pod]:
    tests = {found["metadata"]["name"] for found in manifests.hooks}
    return [
        Pod(name.removeprefix("shop-"), template["metadata"]["labels"], NAMESPACE)
        for name, template in manifests.pod_templates()
        if name not in tests
    ]


def namespace(name: str) -> Labels:
    return {"kubernetes.io/metadata.name": name}


OUTSIDER = Pod("outsider", {"app.kubernetes.io/name": "cart"}, NAMESPACE)
ELSEWHERE = Pod("elsewhere", {"app.kubernetes.io/name": "x"}, namespace("elsewhere"))
GATEWAY = Pod("gateway", {"app": "gateway"}, namespace("gateways"))
DNS = Pod("dns", {"k8s-app": "kube-dns"}, namespace("kube-system"))
PROMETHEUS = Pod("operator-s-prometheus", {"app.kubernetes.io/name": "prometheus"}, namespace("monitoring"))
STORES = Pod("stores", {}, namespace("monitoring"))
KEDA = Pod("keda", {}, namespace("keda"))
STRANGERS = (OUTSIDER, ELSEWHERE, GATEWAY, PROMETHEUS, STORES, KEDA)
GATEWAYS = [{"namespaceSelector": {"matchLabels": namespace("gateways")}}]


def port_of(manifests: Any, service: str) -> int:
    """Return the first port of a service; an internal one comes after it."""
    return int(manifests.one("Service", f"shop-{service}")["spec"]["ports"][0]["port"])


def expected_calls(services: dict[str, Any]) -> Edges:
    stores = {"postgresql": 5432, "valkey": 6379}
    calls = {(name, callee, 50051) for name, own in services.items() for callee in own.get("calls", [])}
    calls |= {(name, callee, 50052) for name, own in services.items() for callee in own.get("internalCalls", [])}
    calls |= {("reconciliation", name, 50052) for name in ("checkout", "payment", "shipping", "email")}
    return calls | {
        (name, service["store"], stores[service["store"]]) for name, service in services.items() if "store" in service
    }


TELEMETRY = {
    ("otel-collector", "jaeger", 4317),
    ("otel-collector", "prometheus", 9090),
    ("grafana", "jaeger", 16686),
    ("storefront", "jaeger", 16686),
    ("grafana", "prometheus", 9090),
    ("otel-collector", "loki", 3100),
    ("grafana", "loki", 3100),
    ("prometheus", "otel-collector", 8888),
    ("prometheus", "jaeger", 8888),
    ("prometheus", "loki", 3100),
    ("prometheus", "alertmanager", 9093),
}
BRING_YOUR_OWN = yaml.safe_load((CHART / "ci" / "bring-your-own-values.yaml").read_text())
SCRAPES = {("operator-s-prometheus", "otel-collector", port) for port in (8888, 8889)}
EXPORTS = {("otel-collector", name, port) for name in ("stores", "operator-s-prometheus") for port in (4318, 3100)}


@pytest.mark.parametrize(
    ("given", "added"),
    [
        ({}, set()),
        ({"observability": {"enabled": True, "alertmanager": {"enabled": True}}}, TELEMETRY),
        (BRING_YOUR_OWN, SCRAPES | EXPORTS),
        ({"load": {"enabled": True}}, {("load-generator", "storefront", 8080)}),
        ({"services": {"ad": {"calls": {"product-catalog": ["GetProduct"]}}}}, {("ad", "product-catalog", 50051)}),
        ({"services": {"ad": {"internalCalls": {"checkout": ["OrderJournal/GetOrder"]}}}}, {("ad", "checkout", 50052)}),
    ],
    ids=["defaults", "observability", "collector alone", "customers", "a call", "an internal call"],
)
def test_pods_reach_only_their_callees_stores_and_collector(
    render: Any, values: dict[str, Any], given: dict[str, Any], added: Edges
) -> None:
    manifests = render(given)
    expected = expected_calls(values["services"]) | added
    if given.get("observability"):
        expected |= {(name, "otel-collector", 4317) for name in [*values["services"], "reconciliation"]}
    assert edges_of(manifests, *STRANGERS) == expected
    # Each side's policies suffice alone: neither depends on the other's.
    pods = pods_of(manifests)
    within = {edge for edge in expected if not {edge[0], edge[1]} & {pod.name for pod in STRANGERS}}
    for direction in ("ingress", "egress"):
        assert allowed(manifests.all("NetworkPolicy"), direction, pods) == (within, set())


@pytest.mark.parametrize("hosts", [[], ["grpc.example.com"]], ids=["web", "grpc"])
def test_callers_from_outside_reach_only_exposed_services_and_operators_internal_ones(
    render: Any, values: dict[str, Any], hosts: list[str]
) -> None:
    outside = {
        "ingressFrom": GATEWAYS,
        "internalFrom": [{"namespaceSelector": {"matchLabels": namespace("elsewhere")}}],
    }
    manifests = render({"networkPolicy": outside, "gateway": {"grpcHostnames": hosts}})
    edges = edges_of(manifests, *STRANGERS)
    assert from_pod(edges, "gateway") == {
        (name, port_of(manifests, name))
        for name, service in values["services"].items()
        if service.get("exposed") and (hosts or service.get("protocol") == "http")
    }
    internal = {(name, 50052) for name, service in values["services"].items() if service.get("internal")}
    assert from_pod(edges, "elsewhere") == internal
    assert not {"payment", "email", "postgresql", "valkey"} & {name for name, _ in from_pod(edges, "gateway")}


def test_every_pod_reaches_dns_and_nothing_else_outside_the_release(render: Any) -> None:
    manifests = render()
    names = {pod.name for pod in pods_of(manifests)}
    for protocol in ("UDP", "TCP"):
        edges = edges_of(manifests, DNS, ELSEWHERE, protocol=protocol)
        assert {edge for edge in edges if edge[1] not in names} == {(name, "dns", 53) for name in names}


def test_pods_of_another_release_reach_nothing(render: Any) -> None:
    others = [pod for pod in pods_of(render(name="shop-b")) if pod.name.startswith("b-")]
    assert len(others) > len(pods_of(render())) / 2
    edges = edges_of(render(), *others)
    assert not [edge for edge in edges if edge[0].startswith("b-")]


def test_every_rule_names_its_ports_and_each_ingress_rule_its_peers(render: Any, matrix_values: dict[str, Any]) -> None:
    for policy in render(matrix_values).all("NetworkPolicy"):
        ingress, egress = (policy["spec"].get(direction, []) for direction in ("ingress", "egress"))
        assert all(rule["ports"] for rule in [*ingress, *egress]), policy["metadata"]["name"]
        assert all(rule["from"] for rule in ingress), policy["metadata"]["name"]


def rules_without_peers(manifests: Any) -> set[tuple[str, int]]:
    """Return the pods that may connect to any address, with the port."""
    return {
        (policy["metadata"]["name"].removeprefix("shop-"), port["port"])
        for policy in manifests.all("NetworkPolicy")
        for rule in policy["spec"].get("egress", [])
        if not rule.get("to")
        for port in rule["ports"]
    }


def test_no_pod_of_the_production_values_connects_to_any_address_or_in_plaintext(render: Any) -> None:
    manifests = render(yaml.safe_load((CHART / "values-production.yaml").read_text()))
    assert rules_without_peers(manifests) == set()
    assert manifests.has("Certificate", "shop-checkout")
    assert "http://" not in str(manifests.environment("checkout"))


@pytest.mark.parametrize("named", [[], ["postgresql", "valkey", "telemetry"]])
def test_servers_outside_are_any_address_until_their_peers_are_named(render: Any, named: list[str]) -> None:
    values = {
        "postgresql": {"enabled": False},
        "externalDatabase": {"host": "db"},
        "valkey": {"enabled": False},
        "externalValkey": {"host": "valkey", "existingSecret": "keys"},
        "defaults": {"existingSecret": "keys"},
        "telemetry": {"endpoint": "https://collector:4318"},
        "tls": {"enabled": True, "plaintext": ["externalDatabase.sslmode"]},
        "networkPolicy": {"peers": dict.fromkeys(named, GATEWAYS)},
    }
    found = rules_without_peers(render(values))
    databases = {(name, 5432) for name in ("payment", "shipping", "email", "checkout", "employee-api")}
    telemetry = {(name, port) for name, port in found if port == 4318}
    assert found - telemetry == (set() if named else databases | {("cart", 6379)})
    assert bool(telemetry) is not bool(named)


def test_test_pods_reach_every_service_and_no_store(render: Any, values: dict[str, Any]) -> None:
    manifests = render({"observability": {"enabled": True}})
    (pod,) = [found for found in manifests.hooks if found["metadata"]["name"] == "shop-test-order"]
    tester = Pod("test", pod["metadata"]["labels"], NAMESPACE)
    reached = from_pod(edges_of(manifests, tester), "test")
    services = {(name, port_of(manifests, name)) for name in values["services"]}
    assert reached == services | {("jaeger", 16686), ("prometheus", 9090), ("loki", 3100)}


def instance(durability: str) -> Pod:
    name = f"shop-pg-{durability}"
    return Pod(durability, {"cnpg.io/cluster": name, "app.kubernetes.io/instance": name}, NAMESPACE)


OPERATOR = Pod("operator", {"app.kubernetes.io/name": "cloudnative-pg"}, namespace("cnpg-system"))


def test_instances_of_a_cluster_reach_each_other_and_only_services_and_the_operator_reach_them(
    render: Any,
) -> None:
    manifests = render(yaml.safe_load((CHART / "ci/cloudnativepg-values.yaml").read_text()))
    twin = Pod("twin", instance("required").labels, NAMESPACE)
    edges = edges_of(manifests, *STRANGERS, OPERATOR, twin, instance("required"), instance("preferred"))
    services = {(name, 5432) for name in ("cart", "employee-api", "payment", "shipping")}
    others = {("operator", 5432), ("operator", 8000), ("twin", 5432), ("twin", 8000)}
    assert {(source, port) for source, target, port in edges if target == "required"} == services | others
    (policy,) = [each for each in manifests.all("NetworkPolicy") if each["metadata"]["name"] == "shop-pg-required"]
    egress = policy["spec"]["egress"]
    assert [rule for rule in egress if "to" not in rule] == [{"ports": [{"port": 443}]}, {"ports": [{"port": 6443}]}]
    assert {"to": [{"ipBlock": {"cidr": "192.0.2.4/32"}}], "ports": [{"port": 443}]} in egress


CONTROL = [Pod(f"in {name}", {"app": "control"}, namespace(name)) for name in ("istio-system", "linkerd")]
MESH_PORTS = {
    "sidecar istio": ({15012}, {15020, 15021}, None),
    "ambient istio": ({15012}, {15020, 15021}, 15008),
    "sidecar linkerd": ({8080, 8086, 8090}, {4191}, 4143),
}


def test_networks_admit_the_ports_of_the_mesh_and_no_other_pods(render: Any, mesh: dict[str, Any]) -> None:
    manifests = render(mesh)
    control, scraped, tunnel = MESH_PORTS[f"{mesh['mesh']} {mesh['meshPolicies']}"]
    names = {pod.name for pod in pods_of(manifests)}
    before = edges_of(render({**mesh, "mesh": "none"}), OUTSIDER, ELSEWHERE, *CONTROL)
    added = edges_of(manifests, OUTSIDER, ELSEWHERE, *CONTROL) - before
    of_control = {(name, server.name, port) for name in names for server in CONTROL for port in control}
    of_control |= {(server.name, name, port) for name in names for server in CONTROL for port in scraped}
    # A tunnel hides the port, but leads only to pods that may be reached, by whom and at which ports the mesh decides.
    tunnels = {(source, target, tunnel) for source, target, _ in before if {source, target} <= names and tunnel}
    assert added == of_control | tunnels


def test_in_ambient_mode_methods_are_checked_on_the_way(
    render: Any, values: dict[str, Any], grpc_services: list[str]
) -> None:
    manifests = render({"mesh": "ambient", "services": {"new": {}}})
    (gateway,) = manifests.all("Gateway")
    assert gateway["spec"]["gatewayClassName"] == "istio-waypoint"
    edges = edges_of(manifests, Pod("waypoint", gateway["spec"]["infrastructure"]["labels"], NAMESPACE))
    for name in [*grpc_services, "new"]:
        labels = manifests.one("Service", f"shop-{name}-clusterip")["metadata"]["labels"]
        assert labels["istio.io/use-waypoint"] == gateway["metadata"]["name"]
        assert ("waypoint", name, 15008) in edges
    callers = {caller for caller, entry in values["services"].items() if (entry or {}).get("calls")}
    assert {source for source, target, port in edges if (target, port) == ("waypoint", 15008)} == (
        callers | {"reconciliation"}
    )
    assert ("postgresql", 15008) not in from_pod(edges, "waypoint")
    # Probes come from an address of the node's agent.
    spec = manifests.one("NetworkPolicy", "shop-default-deny")["spec"]
    blocks = [peer["ipBlock"]["cidr"] for rule in spec["ingress"] for peer in rule["from"] if "ipBlock" in peer]
    assert "169.254.7.127/32" in blocks
