"""The chart's README states what the chart renders."""

import re
from pathlib import Path
from typing import Any

import pytest

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


def test_the_notes_place_an_order_through_port_forwards(render: Any) -> None:
    notes = render(namespace="there").notes
    for line in (
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


def test_the_notes_open_the_storefront_first(render: Any) -> None:
    command = "kubectl --namespace there port-forward service/shop-storefront 8080:8080"
    notes = render(namespace="there").notes
    assert command in notes
    assert notes.index(command) == notes.index("kubectl --namespace there port-forward")
    assert "http://localhost:8080:\n" in notes


def test_the_notes_omit_what_is_not_installed(render: Any) -> None:
    removed = ("storefront", "email", "checkout", "employee-api")
    notes = render({"services": dict.fromkeys(removed)}).notes
    assert "port-forward" not in notes
    assert "spool" not in notes
    assert "helm test" not in notes


URL = "https://shop.example.com"
SERVICES = {"services": {"storefront": {"url": URL}}}
OBSERVABILITY = {"observability": {"enabled": True}}


@pytest.mark.parametrize(
    ("line", "present", "absent"),
    [
        (URL, {**SERVICES, "ingress": {"enabled": True}}, SERVICES),
        ("port-forward service/shop-load-generator 8089:8089", {"load": {"enabled": True}}, {}),
        ("Telemetry is off", {}, OBSERVABILITY),
        ("http://localhost:16686", OBSERVABILITY, {}),
        ("go to http://mine:4317", {"telemetry": {"endpoint": "http://mine:4317"}}, {}),
        ("No registry serves the images not-published.invalid", {}, {"image": {"registry": "registry.example.com"}}),
    ],
)
def test_the_notes_say_what_holds_for_the_values(render: Any, line: str, present: Any, absent: Any) -> None:
    assert line in render(present).notes
    assert line not in render(absent).notes
