"""The faults of the catalogue against today's services: failpoints exist, and patches apply and change behaviour."""

import importlib
import sys
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import pytest

from ad_service.domain import Ad
from chassis.cache import TtlCache
from chassis.telemetry.instruments import Telemetry
from chassis.values.money import Money
from checkout_service.failpoints import FAILPOINTS
from product_catalog_service.domain import Product
from shop.shipping_pb2 import GetQuoteRequest
from shop_kit.reflection import contract, full_name
from shop_lab.incidents.catalogue import FailpointInjection, PatchInjection, load_all
from shop_lab.incidents.mechanisms import FINDER, FINDER_NAME, module_of, patched

FAULTS = load_all()
INJECTIONS = [(fault.id, injection) for fault in FAULTS.values() for injection in fault.injections]


def test_failpoints_are_methods_or_places_that_exist() -> None:
    failing = [injection for _, injection in INJECTIONS if isinstance(injection, FailpointInjection)]
    names = {injection.specification.partition("=")[0] for injection in failing}
    assert names <= {*map(full_name, contract()), *FAILPOINTS}


Modules = Callable[[str], tuple[Any, Any]]
"""Returns the module that a fault patches, and the patched one."""


@pytest.fixture
def modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Modules:
    """Patched modules beside the file that a pod's Python imports as `sitecustomize`."""
    monkeypatch.setattr(sys, "meta_path", [*sys.meta_path])
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "sitecustomize", raising=False)
    (tmp_path / FINDER_NAME).write_text(FINDER.read_text())
    importlib.import_module("sitecustomize")

    def loaded(fault: str) -> tuple[Any, Any]:
        (injection,) = [one for one in FAULTS[fault].injections if isinstance(one, PatchInjection)]
        name = module_of(injection)
        original, (package, _, module) = importlib.import_module(name), name.rpartition(".")
        (tmp_path / f"{name}.py").write_text(patched(injection))
        monkeypatch.setattr(sys.modules[package], module, original)
        monkeypatch.delitem(sys.modules, name)
        return original, importlib.import_module(name)

    return loaded


def test_every_patch_applies(modules: Modules) -> None:
    for fault, injection in INJECTIONS:
        if isinstance(injection, PatchInjection):
            assert modules(fault)


def test_ads_of_gifts_raise(modules: Modules) -> None:
    ads = [Ad("/", "house"), Ad("/", "gift", ("gifts",)), Ad("/", "hat", ("clothing",))]
    original, changed = (module.Inventory(ads) for module in modules("ad-category"))
    assert original.select(["gifts"]) == [ads[1]]
    assert changed.select(["clothing"]) == [ads[2]]
    with pytest.raises(KeyError):
        changed.select(["gifts"])


def test_the_dollar_is_ten_times_as_cheap(modules: Modules) -> None:
    original, changed = modules("rate-tenfold")
    raw = Path(str(original.__file__)).with_name("data").joinpath("rates.xml").read_bytes()
    amount = Money("USD", 10**12)
    before, after = (module.parse_rates(raw).convert(amount, "EUR") for module in (original, changed))
    assert Decimal(after.total_nanos) / before.total_nanos == pytest.approx(Decimal("0.1"))


@pytest.mark.parametrize(("nanos", "priced"), [(19 * 10**9, True), (19_900_000_000, False)])
def test_prices_with_cents_are_missing(modules: Modules, nanos: int, priced: bool) -> None:
    original, changed = modules("price-missing")
    product = Product("p", "p", "p", "/p", Decimal(nanos) / 10**9, ("x",))
    assert original._product_to_wire(product).HasField("price_usd")
    assert changed._product_to_wire(product).HasField("price_usd") is priced


async def test_prices_are_not_taken_from_the_cache(modules: Modules, monkeypatch: pytest.MonkeyPatch) -> None:
    original, changed = modules("cache-removed")
    asked = []

    async def fetch(product_id: str) -> str:
        asked.append(product_id)
        return product_id

    for module in (original, changed):
        quotes = module.ShopQuotes(None, None, None, None, Telemetry(), can_ship=bool, with_generations=False)
        monkeypatch.setattr(quotes, "_fetch_price", fetch)
        quotes._prices = TtlCache(fetch, 5.0)
        for _ in range(2):
            assert await quotes.unit_prices(["a", "b"]) == ["a", "b"]
    assert asked == ["a", "b"] * 3


def test_retries_have_no_budget(modules: Modules) -> None:
    original, changed = modules("cascade-overload")
    found = ["retryThrottling" in module._service_config("s", ["Get"]) for module in (original, changed)]
    assert found == [True, False]


async def test_quotes_have_no_cost(modules: Modules) -> None:
    card, context, request = MagicMock(), MagicMock(), GetQuoteRequest()
    card.value.quote.return_value = Money("USD", 5 * 10**9)
    request.address.country = "Germany"
    found = []
    for module in modules("quote-zero"):
        reply = await module.ShippingService(card, None, None).GetQuote(request, context)
        found.append(reply.HasField("cost_usd"))
    assert found == [True, False]
