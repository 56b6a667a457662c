"""Shipping's manifest is retained for at least as long as checkout's orders."""

from typing import Any

import pytest

from checkout_service.__main__ import Settings as CheckoutSettings
from shipping_service.__main__ import Settings as ShippingSettings


def test_the_chart_sets_the_defaults_of_the_services(render: Any) -> None:
    for service, settings in (("checkout", CheckoutSettings), ("shipping", ShippingSettings)):
        set_by_chart = render().environment(service)["RETENTION_DAYS"]
        assert float(set_by_chart) == settings.retention_days


def test_a_manifest_retained_for_longer_renders(render: Any) -> None:
    days = {"shipping": 200, "checkout": "100.5"}
    services = {name: {"env": {"RETENTION_DAYS": value}} for name, value in days.items()}
    assert render({"services": services}).environment("shipping")["RETENTION_DAYS"] == "200"


@pytest.mark.parametrize("removed", ["shipping", "checkout"])
def test_a_shop_without_shipping_or_checkout_renders(render: Any, removed: str) -> None:
    services: dict[str, Any] = {removed: None, "storefront": None}
    if removed == "shipping":
        services["checkout"] = {"calls": {"shipping": None}, "internalCalls": {"shipping": None}}
    assert not render({"services": services}).has("Deployment", f"shop-{removed}")
