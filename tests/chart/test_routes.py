"""Which requests reach the release from outside, through a gateway or an Ingress."""

from pathlib import Path
from typing import Any

CHART = Path(__file__).resolve().parents[2] / "charts/shop"
GATEWAY = {"enabled": True, "parentRefs": [{"name": "public"}], "grpcHostnames": ["grpc.example.com"]}
SHOP = {"url": "https://shop.example.com", "env": {"TRUSTED_PROXIES": "10.0.0.0/16"}}
# What checkout calls when an order is paid for: not for customers.
EFFECTS_OF_ORDERS = {"Charge", "ShipOrder", "SendOrderConfirmation"}


def test_routes_lead_to_exposed_methods_only(render: Any, values: dict[str, Any], grpc_services: list[str]) -> None:
    manifests = render({"gateway": GATEWAY, "services": {"storefront": SHOP}})
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


def test_no_example_publishes_methods_without_a_sign_in() -> None:
    for file in ("values-production.yaml", "examples/argo-cd.yaml", "examples/flux.yaml"):
        assert "grpcHostnames" not in (CHART / file).read_text()
