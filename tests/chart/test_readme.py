"""The chart's README states what the chart renders."""

import re
from pathlib import Path
from typing import Any

README = (Path(__file__).resolve().parents[2] / "charts/shop/README.md").read_text()


def test_the_table_of_components_has_the_names_and_ports_of_the_services(render: Any, values: dict[str, Any]) -> None:
    rendered = {
        f"{found['metadata']['name']}:{port['port']}"
        for found in render(
            {"observability": {"enabled": True, "alertmanager": {"enabled": True}}, "load": {"enabled": True}}
        ).all("Service")
        for port in found["spec"]["ports"]
        if found["metadata"]["name"].removeprefix("shop-") not in values["services"]
    }
    table = README.partition("## What gets installed")[2]
    documented = set()
    for row in table.splitlines():
        if name := re.search(r"`<release>-([a-z-]+):", row):
            documented |= {f"shop-{name[1]}:{port}" for port in re.findall(r":(\d+)`", row)}
    assert documented - {"shop-employee-api:8000", "shop-storefront:8080"} == rendered - {"shop-jaeger:4317"}
    assert "shop-checkout:50051" in table


def test_the_notes_open_the_storefront_and_place_an_order_through_port_forwards(render: Any) -> None:
    notes = render(namespace="there").notes
    assert notes.index("kubectl --namespace there port-forward") == notes.index(
        "kubectl --namespace there port-forward service/shop-storefront 8080:8080"
    )
    for line in (
        "http://localhost:8080:\n",
        "kubectl --namespace there port-forward service/shop-cart 20051:50051",
        "localhost:20051 shop.CartService/AddItem",
        "localhost:20058 shop.CheckoutService/PlaceOrder",
        "helm test --namespace there shop",
        "existingSecret",
    ):
        assert line in notes


def test_the_notes_call_with_the_certificate_of_the_tests_and_verify_the_service_s(render: Any) -> None:
    notes = render({"tls": {"enabled": True}}).notes
    assert "get secret shop-test-tls" in notes
    assert "grpcurl $tls -authority shop-cart -d" in notes
    assert "-plaintext" not in notes


def test_the_notes_omit_what_is_not_installed(render: Any) -> None:
    removed = ("storefront", "email", "checkout", "employee-api")
    notes = render({"services": dict.fromkeys(removed)}).notes
    assert "port-forward" not in notes
    assert "spool" not in notes
    assert "helm test" not in notes


URL = "https://shop.example.com"
SERVICES = {"services": {"storefront": {"url": URL}}}
MUCH = {
    **SERVICES,
    "ingress": {"enabled": True},
    "load": {"enabled": True},
    "observability": {"enabled": True},
    "image": {"registry": "registry.example.com"},
}


def test_the_notes_say_what_holds_for_the_values(render: Any) -> None:
    much, default = render(MUCH).notes, render().notes
    for line in (URL, "port-forward service/shop-load-generator 8089:8089", "http://localhost:16686"):
        assert line in much
        assert line not in default
    for line in ("Telemetry is off", "No registry serves the images not-published.invalid"):
        assert line in default
        assert line not in much
    assert URL not in render(SERVICES).notes
    assert "go to http://c:4317" in render({"telemetry": {"endpoint": "http://c:4317"}}).notes
