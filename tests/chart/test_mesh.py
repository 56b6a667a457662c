"""What a service mesh changes: addresses, protocols and pods. Nothing is replaced. Policies: test_callers.py."""

from collections.abc import Iterator
from typing import Any

IN_MESH = {"service", "job", "test", "load"}
Object = dict[str, Any]


def test_while_a_release_is_switched_all_is_rendered_but_the_policies(render: Any, mesh: Object) -> None:
    strict, permissive = (
        {(found["apiVersion"], found["kind"], found["metadata"]["name"]) for found in render(each).objects}
        for each in (mesh, {**mesh, "meshPermissive": True})
    )
    assert permissive < strict
    assert {api.partition("/")[0] for api, kind, _ in strict - permissive if kind != "GRPCRoute"} == {
        {"istio": "security.istio.io", "linkerd": "policy.linkerd.io"}[mesh["meshPolicies"]]
    }
    assert not [kind for _, kind, _ in permissive if kind in {"AuthorizationPolicy", "PeerAuthentication", "Server"}]


def addresses(manifests: Any) -> Iterator[tuple[str, str, int]]:
    """Yield who has the address of which host and port: variables of containers, and what the tests check."""
    for name, pod in manifests.pod_templates():
        for variable in pod["spec"]["containers"][0].get("env", ()):
            lines = [variable.get("value", "")] if variable["name"].endswith("_ADDR") else []
            if variable["name"] == "TARGETS":
                lines = [line.rpartition(" ")[2] for line in variable["value"].splitlines()]
            for line in lines:
                host, _, port = line.rpartition(":")
                yield name, host, int(port)


def test_every_address_is_one_of_a_service_with_a_virtual_address(render: Any, mesh: Object) -> None:
    manifests = render(mesh)
    services = {found["metadata"]["name"]: found["spec"] for found in manifests.all("Service")}
    used = {*addresses(manifests)}
    callers = {"shop-checkout", "shop-reconciliation", "shop-test-order", "shop-test-health"}
    assert {name for name, _, _ in used} >= callers
    for _, host, port in used:
        assert services[host].get("clusterIP") is None
        assert port in {found["port"] for found in services[host]["ports"]}
    without = {(name, host.removesuffix("-clusterip"), port) for name, host, port in used}
    assert without == {*addresses(render({**mesh, "mesh": "none"}))}


def test_a_mesh_adds_services_and_declares_protocols_but_replaces_nothing(
    render: Any, mesh: Object, grpc_services: list[str]
) -> None:
    with_mesh, without = (
        {found["metadata"]["name"]: found for found in render(each).all("Service")}
        for each in (mesh, {**mesh, "mesh": "none"})
    )
    assert with_mesh.keys() - without.keys() == {f"shop-{name}-clusterip" for name in grpc_services}
    grpc = {"istio": "grpc", "linkerd": "kubernetes.io/h2c"}[mesh["meshPolicies"]]
    tcp = {"istio": "tcp", "linkerd": "linkerd.io/opaque"}[mesh["meshPolicies"]]
    for name, found in with_mesh.items():
        before = without[name.removesuffix("-clusterip")]
        assert found["spec"]["selector"] == before["spec"]["selector"]
        declared = {port.get("appProtocol") for port in found["spec"]["ports"] if port["name"] != "otlp"}
        assert {port["appProtocol"] for port in found["spec"]["ports"] if port["name"] == "otlp"} <= {grpc}
        is_grpc = name.removeprefix("shop-").removesuffix("-clusterip") in grpc_services
        is_http = name in {"shop-storefront", "shop-employee-api"}
        expected = {grpc} if is_grpc else {"http"} if is_http else {None} if "load" in name else {tcp}
        assert declared == expected, name
        if name in without:
            assert found["spec"].get("clusterIP") == before["spec"].get("clusterIP")


def test_pods_of_services_and_their_clients_are_in_the_mesh_stores_and_telemetry_are_not_changed(
    render: Any, mesh: Object
) -> None:
    labels, annotations = {
        "sidecar istio": ({"sidecar.istio.io/inject": "true"}, {"sidecar.istio.io/nativeSidecar": "true"}),
        "ambient istio": ({"istio.io/dataplane-mode": "ambient"}, {}),
        "sidecar linkerd": (
            {},
            {"linkerd.io/inject": "enabled", "config.beta.linkerd.io/proxy-enable-native-sidecar": "true"},
        ),
    }[f"{mesh['mesh']} {mesh['meshPolicies']}"]
    before = dict(render({**mesh, "mesh": "none"}).pod_templates())
    for name, pod in render(mesh).pod_templates():
        meta = pod["metadata"]
        if meta["labels"]["app.kubernetes.io/component"] not in IN_MESH:
            assert pod == before[name]
            continue
        assert labels.items() <= meta["labels"].items(), name
        assert annotations.items() <= meta.get("annotations", {}).items(), name
        variables = {each["name"]: each.get("value") for each in pod["spec"]["containers"][0]["env"]}
        assert variables.get("BALANCING") == (None if "load" in name else "mesh"), name
