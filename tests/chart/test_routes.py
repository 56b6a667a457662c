"""Which requests reach the release from outside, through a gateway or an Ingress."""

import re
from importlib import import_module
from pathlib import Path
from typing import Any

CHART = Path(__file__).resolve().parents[2] / "charts/shop"
GATEWAY = {"enabled": True, "parentRefs": [{"name": "public"}]}
INGRESS = {"enabled": True}
GRPC = {"grpcHostnames": ["grpc.example.com"]}
SHOP = {"url": "https://shop.example.com"}
EMPLOYEES = {"url": "http://employees.example.com:8080", "env": {"AUTH_MODE": "off"}}


# What checkout calls when an order is paid for: not for customers.
EFFECTS_OF_ORDERS = {"Charge", "ShipOrder", "SendOrderConfirmation"}


def test_routes_lead_to_exposed_methods_only(render: Any, values: dict[str, Any], grpc_services: list[str]) -> None:
    manifests = render({"gateway": GATEWAY | GRPC, "services": {"storefront": SHOP}})
    rules = manifests.one("GRPCRoute", "shop-shop")["spec"]["rules"]
    routed = {
        (rule["backendRefs"][0]["name"], match["method"]["service"], match["method"]["method"])
        for rule in rules
        for match in rule["matches"]
    }
    assert routed == {
        (f"shop-{name}", f"shop.{name.title().replace('-', '')}Service", method)
        for name in grpc_services
        for method in values["services"][name].get("exposed", [])
    }
    assert {method for _, _, method in routed} & EFFECTS_OF_ORDERS == set()
    assert {backend["port"] for rule in rules for backend in rule["backendRefs"]} == {50051}
    removed = {name for rule in rules for name in rule["filters"][0]["requestHeaderModifier"]["remove"]}
    assert removed == {"traceparent", "tracestate", "baggage"}


def test_every_exposed_method_exists(values: dict[str, Any], grpc_services: list[str]) -> None:
    for name in grpc_services:
        file = import_module(f"shop.{name.replace('-', '_')}_pb2").DESCRIPTOR
        (service,) = file.services_by_name.values()
        assert set((values["services"][name] or {}).get("exposed", [])) <= set(service.methods_by_name)


def hosts(manifests: Any) -> dict[str, list[str]]:
    """Return the hosts of each HTTP service that has a route."""
    routes = {found["metadata"]["name"]: found["spec"]["hostnames"] for found in manifests.all("HTTPRoute")}
    ingresses = {
        found["metadata"]["name"]: [rule["host"] for rule in found["spec"]["rules"]]
        for found in manifests.all("Ingress")
    }
    return routes | ingresses


def test_an_http_service_has_the_host_of_its_url_and_without_a_url_no_route(render: Any) -> None:
    shop, employees = {"shop-storefront": ["shop.example.com"]}, {"shop-employee-api": ["employees.example.com"]}
    both = {"storefront": SHOP, "employee-api": EMPLOYEES}
    assert hosts(render({"ingress": INGRESS, "services": both})) == shop | employees
    assert hosts(render({"gateway": GATEWAY, "services": {"storefront": SHOP}})) == shop


def test_a_gateway_for_grpc_alone_needs_no_url(render: Any) -> None:
    closed: dict[str, Any] = {"storefront": {"exposed": []}, "employee-api": {"exposed": []}}
    manifests = render({"gateway": GATEWAY | GRPC, "services": closed})
    assert manifests.one("GRPCRoute", "shop-shop")["spec"]["hostnames"] == GRPC["grpcHostnames"]
    assert hosts(manifests) == {}


def test_methods_without_a_sign_in_have_no_route_unless_a_host_is_named(render: Any) -> None:
    manifests = render({"gateway": GATEWAY, "services": {"storefront": SHOP}})
    assert manifests.all("GRPCRoute") == []
    assert "WARNING" not in manifests.notes
    named = render({"gateway": GATEWAY | GRPC, "services": {"storefront": SHOP}})
    assert re.findall("^WARNING: (gateway.grpcHostnames) .*sign-in", named.notes, re.MULTILINE)
    for file in ("values-production.yaml", "examples/argo-cd.yaml", "examples/flux.yaml"):
        assert "grpcHostnames" not in (CHART / file).read_text()


def test_exposed_paths_alone_are_routed_and_each_ingress_has_a_certificate_of_its_own(render: Any) -> None:
    services = {
        "storefront": {**SHOP, "tlsSecret": "shop-tls"},
        "employee-api": {**EMPLOYEES, "exposed": ["/api", "/docs"]},
    }
    manifests = render({"gateway": GATEWAY, "ingress": INGRESS, "services": services})
    (rule,) = manifests.one("HTTPRoute", "shop-employee-api")["spec"]["rules"]
    assert [match["path"]["value"] for match in rule["matches"]] == ["/api", "/docs"]
    assert rule["backendRefs"] == [{"name": "shop-employee-api", "port": 8000}]
    ingress = manifests.one("Ingress", "shop-employee-api")["spec"]
    assert [path["path"] for path in ingress["rules"][0]["http"]["paths"]] == ["/api", "/docs"]
    assert "tls" not in ingress
    assert manifests.one("Ingress", "shop-storefront")["spec"]["tls"] == [
        {"hosts": ["shop.example.com"], "secretName": "shop-tls"}
    ]
