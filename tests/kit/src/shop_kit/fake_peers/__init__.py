"""Fake peers of checkout: they follow the contract, count their calls, and fail or hang on demand."""

from contextlib import AbstractAsyncContextManager
from typing import Any

from shop_kit.fake_peers.effects import (
    FakeConfirmations,
    FakeEmail,
    FakeLedger,
    FakeManifest,
    FakePayment,
    FakeShipping,
)
from shop_kit.fake_peers.peer import FakePeer, Fault
from shop_kit.fake_peers.reads import FakeCart, FakeCatalog, FakeCurrency, FakeOrderedCart
from shop_kit.serving import serve

__all__ = ["FakePeer", "FakePeers", "Fault"]


class FakePeers:
    """The six peers of checkout, and the internal services of cart, payment, shipping and email."""

    def __init__(self) -> None:
        self.cart, self.catalog = FakeCart(), FakeCatalog()
        self.currency = FakeCurrency()  # type: ignore[abstract] # it has the methods that checkout calls
        self.shipping, self.payment, self.email = FakeShipping(), FakePayment(), FakeEmail()
        self.ledger = FakeLedger(self.payment)  # type: ignore[abstract] # as above
        self.manifest = FakeManifest(self.shipping)  # type: ignore[abstract] # as above
        self.ordered_cart = FakeOrderedCart(self.cart)
        self.confirmations = FakeConfirmations(self.email)

    def serving(self, **settings: Any) -> AbstractAsyncContextManager[str]:
        """Serve all of them on one port, with settings of a service, while in the context, which is its address."""
        return serve(*vars(self).values(), **settings)
