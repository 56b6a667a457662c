"""The rendered network policies, evaluated as a cluster does, allow what services call and store, and nothing more."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

CHART = Path(__file__).resolve().parents[2] / "charts" / "shop"

Policy = dict[str, Any]
Labels = dict[str, str]
NAMESPACE = {"kubernetes.io/metadata.name": "shop"}


@dataclass(frozen=True)
class Pod:
    name: str
    labels: Labels
    namespace: Labels


def matches(selector: dict[str, Any], labels: Labels) -> bool:
    """Evaluate a label selector; an empty one selects everything."""
    expressions = {
        "In": lambda e: labels.get(e["key"]) in e["values"],
        "NotIn": lambda e: labels.get(e["key"]) not in e["values"],
        "Exists": lambda e: e["key"] in labels,
        "DoesNotExist": lambda e: e["key"] not in labels,
    }
    return selector.get("matchLabels", {}).items() <= labels.items() and all(
        expressions[expression["operator"]](expression) for expression in selector.get("matchExpressions", [])
    )


def peer_matches(peer: dict[str, Any], pod: Pod) -> bool:
    """Return whether a rule's peer includes a pod; without a namespaceSelector, only pods in the policy's namespace."""
    if "ipBlock" in peer:
        return False
    in_namespace = (
        matches(peer["namespaceSelector"], pod.namespace) if "namespaceSelector" in peer else pod.namespace == NAMESPACE
    )
    return in_namespace and matches(peer.get("podSelector", {}), pod.labels)


def rule_allows(rule: dict[str, Any], side: str, pod: Pod, port: int, protocol: str) -> bool:
    """Return whether a rule allows a pod; without peers it allows all pods, without ports all ports."""
    peers, ports = rule.get(side), rule.get("ports")
    return (not peers or any(peer_matches(peer, pod) for peer in peers)) and (
        not ports or any((entry["port"], entry.get("protocol", "TCP")) == (port, protocol) for entry in ports)
    )


def allowed(policies: list[Policy], direction: str, pods: tuple[Pod, Pod], port: int, protocol: str) -> bool:
    """Return whether the first of two pods may exchange traffic with the second.

    Policies add up; without a policy for its direction, a pod is open.
    """
    pod, other = pods
    if pod.namespace != NAMESPACE:
        return True
    selecting = [
        policy["spec"]
        for policy in policies
        if direction in policy["spec"]["policyTypes"] and matches(policy["spec"]["podSelector"], pod.labels)
    ]
    side = {"Ingress": "from", "Egress": "to"}[direction]
    return not selecting or any(
        rule_allows(rule, side, other, port, protocol)
        for spec in selecting
        for rule in spec.get(direction.lower()) or []
    )


def reaches(
    policies: list[Policy],
    source: Pod,
    target: Pod,
    port: int,
    *,
    protocol: str = "TCP",
    directions: tuple[str, ...] = ("Egress", "Ingress"),
) -> bool:
    pods = {"Egress": (source, target), "Ingress": (target, source)}
    return all(allowed(policies, direction, pods[direction], port, protocol) for direction in directions)


OUTSIDER = Pod("outsider", {"app.kubernetes.io/name": "cart"}, NAMESPACE)
ELSEWHERE = Pod("elsewhere", {"app.kubernetes.io/name": "x"}, {"kubernetes.io/metadata.name": "elsewhere"})
GATEWAY = Pod("gateway", {"app": "gateway"}, {"kubernetes.io/metadata.name": "gateways"})
DNS = Pod("dns", {"k8s-app": "kube-dns"}, {"kubernetes.io/metadata.name": "kube-system"})
ALL_PORTS = [50051, 50052, 8000, 8080, 8089, 5432, 6379, 4317, 16686, 9090, 9093, 3000, 8888, 8889, 3100, 4318]


def pods_of(manifests: Any) -> dict[str, Pod]:
    tests = {found["metadata"]["name"] for found in manifests.hooks}
    return {
        name.removeprefix("shop-"): Pod(name, template["metadata"]["labels"], NAMESPACE)
        for name, template in manifests.pod_templates()
        if name not in tests
    }


def matrix_of(
    manifests: Any, more: tuple[Pod, ...] = (), directions: tuple[str, ...] = ("Egress", "Ingress")
) -> set[tuple[str, str, int]]:
    """Return (source, target, port) for every pod that reaches another, of the release and of some others.

    With one direction, the policies of that side alone decide: neither side may depend on the other's.
    """
    policies, pods = manifests.all("NetworkPolicy"), pods_of(manifests)
    sources = {**pods, **{pod.name: pod for pod in more}}
    return {
        (source, target, port)
        for source, from_pod in sources.items()
        for target, to_pod in pods.items()
        for port in ALL_PORTS
        if source != target and reaches(policies, from_pod, to_pod, port, directions=directions)
    }


def expected_calls(services: dict[str, Any]) -> set[tuple[str, str, int]]:
    stores = {"postgresql": 5432, "valkey": 6379}
    calls = {(name, callee, 50051) for name, service in services.items() for callee in service.get("calls", [])}
    calls |= {
        (name, callee, 50052) for name, service in services.items() for callee in service.get("internalCalls", [])
    }
    calls |= {("reconciliation", name, 50052) for name in ("checkout", "payment", "shipping", "email")}
    return calls | {
        (name, service["store"], stores[service["store"]]) for name, service in services.items() if "store" in service
    }


def test_pods_reach_only_their_callees_and_stores(render: Any, values: dict[str, Any]) -> None:
    assert matrix_of(render(), (OUTSIDER, ELSEWHERE)) == expected_calls(values["services"])


@pytest.mark.parametrize(("direction", "more"), [("Ingress", (OUTSIDER, ELSEWHERE)), ("Egress", ())])
def test_each_side_s_policies_suffice_alone(
    render: Any, values: dict[str, Any], direction: str, more: tuple[Pod, ...]
) -> None:
    assert matrix_of(render(), more, (direction,)) == expected_calls(values["services"])


def test_observability_adds_only_its_own_edges(render: Any, values: dict[str, Any]) -> None:
    telemetry = {(name, "otel-collector", 4317) for name in [*values["services"], "reconciliation"]} | {
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
    manifests = render({"observability": {"enabled": True, "alertmanager": {"enabled": True}}})
    assert matrix_of(manifests, (OUTSIDER, ELSEWHERE)) == expected_calls(values["services"]) | telemetry


BRING_YOUR_OWN = yaml.safe_load((CHART / "ci" / "bring-your-own-values.yaml").read_text())
MONITORING = {"kubernetes.io/metadata.name": "monitoring"}
OPERATOR_S_PROMETHEUS = Pod("operator-s-prometheus", {"app.kubernetes.io/name": "prometheus"}, MONITORING)


def test_only_the_prometheus_in_the_values_scrapes_a_collector_without_the_bundle(
    render: Any, values: dict[str, Any]
) -> None:
    others = (OPERATOR_S_PROMETHEUS, OUTSIDER, ELSEWHERE, Pod("other", {}, MONITORING))
    added = matrix_of(render(BRING_YOUR_OWN), others) - expected_calls(values["services"])
    assert added == {(name, "otel-collector", 4317) for name in [*values["services"], "reconciliation"]} | {
        ("operator-s-prometheus", "otel-collector", 8888),
        ("operator-s-prometheus", "otel-collector", 8889),
    }


def test_the_collector_reaches_the_ports_of_its_stores_only(render: Any) -> None:
    manifests = render(BRING_YOUR_OWN)
    collector = pods_of(manifests)["otel-collector"]
    stores = Pod("stores", {}, MONITORING)
    for pod, expected in ((stores, {4318, 3100}), (ELSEWHERE, set())):
        assert {port for port in ALL_PORTS if reaches(manifests.all("NetworkPolicy"), collector, pod, port)} == expected


@pytest.mark.parametrize(
    ("values", "edge"),
    [
        ({"load": {"enabled": True}}, ("load-generator", "storefront", 8080)),
        ({"services": {"ad": {"calls": {"product-catalog": ["GetProduct"]}}}}, ("ad", "product-catalog", 50051)),
        ({"services": {"ad": {"internalCalls": {"checkout": ["OrderJournal/GetOrder"]}}}}, ("ad", "checkout", 50052)),
    ],
    ids=["customers", "a call", "an internal call"],
)
def test_a_new_caller_adds_one_edge(render: Any, values: dict[str, Any], edge: tuple[str, str, int]) -> None:
    assert matrix_of(render(values), (OUTSIDER, ELSEWHERE)) - matrix_of(render()) == {edge}


PEERS = [{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "gateways"}}}]


@pytest.mark.parametrize("hosts", [[], ["grpc.example.com"]], ids=["web", "grpc"])
def test_callers_from_outside_reach_only_exposed_services(
    render: Any, values: dict[str, Any], ports: dict[str, int], hosts: list[str]
) -> None:
    manifests = render({"networkPolicy": {"ingressFrom": PEERS}, "gateway": {"grpcHostnames": hosts}})
    reached = {
        (target, port) for source, target, port in matrix_of(manifests, (GATEWAY, OUTSIDER)) if source == "gateway"
    }
    assert reached == {
        (name, ports[name])
        for name, service in values["services"].items()
        if service.get("exposed") and (hosts or service.get("protocol") == "http")
    }
    assert {target for target, _ in reached} & {"payment", "email", "postgresql", "valkey"} == set()


def test_operators_reach_internal_services_only(render: Any, values: dict[str, Any]) -> None:
    manifests = render({"networkPolicy": {"internalFrom": PEERS}})
    reached = {(target, port) for source, target, port in matrix_of(manifests, (GATEWAY,)) if source == "gateway"}
    assert reached == {(name, 50052) for name, service in values["services"].items() if service.get("internal")}
    assert ("checkout", 50052) in reached


def test_every_pod_reaches_dns_and_nothing_else_outside_the_release(render: Any) -> None:
    manifests = render()
    for pod in pods_of(manifests).values():
        policies = manifests.all("NetworkPolicy")
        assert reaches(policies, pod, DNS, 53, protocol="UDP")
        assert reaches(policies, pod, DNS, 53)
        assert not reaches(policies, pod, DNS, 8080)
        assert not reaches(policies, pod, ELSEWHERE, 443)


def test_pods_of_another_release_reach_nothing(render: Any) -> None:
    policies = render(name="shop").all("NetworkPolicy")
    ours, theirs = pods_of(render(name="shop")), pods_of(render(name="shop-b"))
    foreign = [pod for pod in theirs.values() if pod.name.startswith("shop-b")]
    assert not [
        (source.name, target.name)
        for source in foreign
        for target in ours.values()
        for port in ALL_PORTS
        if reaches(policies, source, target, port)
    ]


def test_every_rule_names_its_ports_and_every_ingress_rule_its_peers(
    render: Any, matrix_values: dict[str, Any]
) -> None:
    for policy in render(matrix_values).all("NetworkPolicy"):
        for rule in policy["spec"].get("ingress", []):
            assert rule["from"], policy["metadata"]["name"]
            assert rule["ports"], policy["metadata"]["name"]
        for rule in policy["spec"].get("egress", []):
            assert rule["ports"], policy["metadata"]["name"]


def rules_without_peers(manifests: Any) -> set[tuple[str, int]]:
    """Return the pods that may connect to any address, with the port."""
    return {
        (policy["metadata"]["name"].removeprefix("shop-"), port["port"])
        for policy in manifests.all("NetworkPolicy")
        for rule in policy["spec"].get("egress", [])
        if not rule.get("to")
        for port in rule["ports"]
    }


def test_every_egress_rule_names_its_peers_unless_the_values_say_any(
    render: Any, matrix_values: dict[str, Any]
) -> None:
    peers = dict.fromkeys(("postgresql", "valkey", "telemetry", "kubernetes"), PEERS)
    policies = {**matrix_values.get("networkPolicy", {}), "peers": peers}
    assert rules_without_peers(render({**matrix_values, "networkPolicy": policies})) == set()


def test_no_pod_of_the_production_values_connects_to_any_address(render: Any) -> None:
    production = yaml.safe_load((CHART / "values-production.yaml").read_text())
    assert rules_without_peers(render(production)) == set()


@pytest.mark.parametrize("peers", [{}, {"postgresql": "any"}, {"postgresql": PEERS}])
def test_a_server_outside_is_any_address_until_its_peers_are_named(render: Any, peers: dict[str, Any]) -> None:
    values = {
        "postgresql": {"enabled": False},
        "externalDatabase": {"host": "db", "sslmode": "disable"},
        "defaults": {"existingSecret": "keys"},
        "networkPolicy": {"peers": peers},
    }
    expected = {"payment", "shipping", "email", "checkout", "employee-api"} if peers != {"postgresql": PEERS} else set()
    assert rules_without_peers(render(values)) == {(name, 5432) for name in expected}


def test_test_pods_reach_every_service_and_no_store(render: Any, ports: dict[str, int]) -> None:
    manifests = render({"observability": {"enabled": True}, "load": {"enabled": True}})
    (pod,) = [found for found in manifests.hooks if found["metadata"]["name"] == "shop-test-order"]
    tester = Pod("test", pod["metadata"]["labels"], NAMESPACE)
    reached = {(target, port) for source, target, port in matrix_of(manifests, (tester,)) if source == "test"}
    assert reached == {*ports.items(), ("jaeger", 16686), ("prometheus", 9090), ("loki", 3100)}


@pytest.mark.parametrize("enabled", [True, False])
def test_policies_can_be_disabled(render: Any, enabled: bool) -> None:
    assert bool(render({"networkPolicy": {"enabled": enabled}}).all("NetworkPolicy")) is enabled


INSTANCE = Pod(
    "pg-1", {"cnpg.io/cluster": "shop-pg-required", "app.kubernetes.io/instance": "shop-pg-required"}, NAMESPACE
)
OTHER = Pod(
    "pg-2", {"cnpg.io/cluster": "shop-pg-preferred", "app.kubernetes.io/instance": "shop-pg-preferred"}, NAMESPACE
)
OPERATOR = Pod("operator", {"app.kubernetes.io/name": "cloudnative-pg"}, {"kubernetes.io/metadata.name": "cnpg-system"})


def test_instances_of_a_cluster_reach_each_other_and_only_their_services_and_the_operator_reach_them(
    render: Any,
) -> None:
    manifests = render(yaml.safe_load((CHART / "ci/cloudnativepg-values.yaml").read_text()))
    policies, pods = manifests.all("NetworkPolicy"), pods_of(manifests)
    sources = [*pods.values(), OUTSIDER, ELSEWHERE, OPERATOR, OTHER, INSTANCE]
    found = {
        (source.name, port) for source in sources for port in ALL_PORTS if reaches(policies, source, INSTANCE, port)
    }
    services = {(f"shop-{name}", 5432) for name in ("cart", "employee-api", "payment", "shipping")}
    assert found == services | {("operator", 5432), ("operator", 8000), ("pg-1", 5432), ("pg-1", 8000)}
    assert reaches(policies, INSTANCE, DNS, 53, protocol="UDP")
    (egress,) = [found["spec"]["egress"] for found in policies if found["metadata"]["name"] == "shop-pg-required"]
    assert [rule for rule in egress if "to" not in rule] == [{"ports": [{"port": 443}]}, {"ports": [{"port": 6443}]}]
    assert {"to": [{"ipBlock": {"cidr": "192.0.2.4/32"}}], "ports": [{"port": 443}]} in egress


def control_planes() -> list[Pod]:
    names = ["istio-system", "linkerd"]
    return [Pod(f"in {name}", {"app": "control"}, {"kubernetes.io/metadata.name": name}) for name in names]


PORTS = {
    "sidecar istio": ({15012}, {15020, 15021}, None),
    "ambient istio": ({15012}, {15020, 15021}, 15008),
    "sidecar linkerd": ({8080, 8086, 8090}, {4191}, 4143),
}


def test_networks_admit_the_ports_of_the_mesh_and_no_other_pods(render: Any, mesh: dict[str, Any]) -> None:
    manifests = render(mesh)
    control, scraped, tunnel = PORTS[f"{mesh['mesh']} {mesh['meshPolicies']}"]
    policies, every = (
        manifests.all("NetworkPolicy"),
        {443, 4143, 4191, 8080, 8086, 8090, 15001, 15008, 15012, 15017, 15020, 15021},
    )
    for pod in pods_of(manifests).values():
        for server in control_planes():
            assert {port for port in every if reaches(policies, pod, server, port)} == control
            assert {port for port in every if reaches(policies, server, pod, port)} == scraped
        assert not [port for port in every if reaches(policies, pod, ELSEWHERE, port)]
    before = matrix_of(render({**mesh, "mesh": "none"}), (OUTSIDER, ELSEWHERE))
    assert matrix_of(manifests, (OUTSIDER, ELSEWHERE)) == before
    if tunnel is None:
        return
    # A tunnel hides the port, but leads only to pods that may be reached, by whom and at which ports the mesh decides.
    pods = pods_of(manifests)
    tunnels = {
        (source, target)
        for source, from_pod in pods.items()
        for target, to_pod in pods.items()
        if source != target and reaches(policies, from_pod, to_pod, tunnel)
    }
    assert tunnels == {(source, target) for source, target, _ in before}


def test_in_ambient_mode_methods_are_checked_on_the_way(
    render: Any, values: dict[str, Any], grpc_services: list[str]
) -> None:
    manifests = render({"mesh": "ambient", "services": {"new": {}}})
    (gateway,) = manifests.all("Gateway")
    assert gateway["spec"]["gatewayClassName"] == "istio-waypoint"
    waypoint = Pod("waypoint", gateway["spec"]["infrastructure"]["labels"], NAMESPACE)
    policies, pods = manifests.all("NetworkPolicy"), pods_of(manifests)
    for name in [*grpc_services, "new"]:
        labels = manifests.one("Service", f"shop-{name}-clusterip")["metadata"]["labels"]
        assert labels["istio.io/use-waypoint"] == gateway["metadata"]["name"]
        assert reaches(policies, waypoint, pods[name], 15008)
    callers = {caller for caller, entry in values["services"].items() if (entry or {}).get("calls")}
    reached = {name for name, pod in pods.items() if reaches(policies, pod, waypoint, 15008)}
    assert reached == callers | {"reconciliation"}
    assert not reaches(policies, waypoint, pods["postgresql"], 15008)


def test_in_ambient_mode_probes_come_from_an_address_of_its_own(render: Any) -> None:
    for mode, expected in (("ambient", ["169.254.7.127/32"]), ("sidecar", [])):
        spec = render({"mesh": mode}).one("NetworkPolicy", "shop-default-deny")["spec"]
        blocks = [peer["ipBlock"]["cidr"] for rule in spec["ingress"] for peer in rule["from"] if "ipBlock" in peer]
        assert blocks[:1] == expected
