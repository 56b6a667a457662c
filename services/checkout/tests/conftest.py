"""What the checkout tests share: an empty journal of either kind."""

from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from chassis.money import Money
from checkout_service.codec import answer_to_bytes
from checkout_service.domain import Address, Order, OrderLine, new_order_id
from checkout_service.journal import Journal, NewOrder
from checkout_service.opening import open_journal

MUG = OrderLine("mug", 2, Money.of("EUR", 17, 980_000_000))


@pytest.fixture(params=["sqlite", "postgres"])
def journal_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/checkout.db"
    return str(request.getfixturevalue("postgres_url"))


@pytest.fixture
async def journal(journal_url: str) -> AsyncIterator[Journal]:
    async with open_journal(journal_url, worker="one") as opened:
        yield opened


@pytest.fixture
async def other_journal(journal_url: str, journal: Journal) -> AsyncIterator[Journal]:  # noqa: ARG001 - opened first
    """The same orders as another replica sees them."""
    async with open_journal(journal_url, worker="two") as opened:
        yield opened


@pytest.fixture
def new_order() -> Callable[..., NewOrder]:
    """Makes an order that nobody wrote down yet, under the scope `scope` unless another one is named."""

    def make(scope: str = "scope", fingerprint: str = "mark", **changed: Any) -> NewOrder:
        order = Order(
            new_order_id(),
            "user",
            "ann@mail.example",
            "etag",
            Address("Main 1", "Berlin", "BE", "Germany", 10115),
            (MUG,),
            Money.of("EUR", 4, 500_000_000),
        )
        order = replace(order, **changed)
        return NewOrder(scope, fingerprint, order, answer_to_bytes(order), "")

    return make
