"""Shipping's manifest is retained for at least as long as checkout's orders."""

from typing import Any

import pytest

from checkout_service.__main__ import Settings as CheckoutSettings
from shipping_service.__main__ import Settings as ShippingSettings


def test_the_chart_sets_the_defaults_of_the_services(render: Any) -> None:
    for service, settings in (("checkout", CheckoutSettings), ("shipping", ShippingSettings)):
        set_by_chart = render().environment(service)["RETENTION_DAYS"]
        assert float(set_by_chart) == settings.retention_days


def retained(shipping: Any, checkout: Any) -> dict[str, Any]:
    days = {"shipping": shipping, "checkout": checkout}
    return {"services": {name: {"env": {"RETENTION_DAYS": value}} for name, value in days.items()}}


@pytest.mark.parametrize(("shipping", "checkout"), [(89, 90), (365, 400), ("30", "31")])
def test_a_manifest_retained_for_less_time_than_orders_fails_the_render(
    render: Any, shipping: Any, checkout: Any
) -> None:
    message = rf"services\.shipping\.env\.RETENTION_DAYS: {shipping} days are fewer than the {checkout} days"
    with pytest.raises(ValueError, match=message):
        render(retained(shipping, checkout))


def test_a_manifest_retained_for_longer_renders(render: Any) -> None:
    assert render(retained(200, "100.5")).environment("shipping")["RETENTION_DAYS"] == "200"


@pytest.mark.parametrize("removed", ["shipping", "checkout"])
def test_a_shop_without_shipping_or_checkout_renders(render: Any, removed: str) -> None:
    services: dict[str, Any] = {removed: None, "storefront": None}
    if removed == "shipping":
        services["checkout"] = {"calls": [], "internalCalls": []}
    assert not render({"services": services}).has("Deployment", f"shop-{removed}")
