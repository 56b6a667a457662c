"""Compares each store with a model, a dictionary, over random sequences of calls."""

import asyncio
import uuid
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager

import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from cart_service.domain import Addition, CartStore, NewQuantity, Purchase
from chassis.errors import IdempotencyKeyReused
from chassis.values.orders import Item

OpenStore = Callable[..., AbstractAsyncContextManager[CartStore]]

USERS = st.sampled_from(["ada", "ada", "ada", "bob"])
PRODUCTS = st.sampled_from(["pan", "axe"])
KEYS = st.none() | st.sampled_from(["k1", "k2", "k3", "k4", "k5"])


class CartMachine(RuleBasedStateMachine):
    """A store and its model, which must agree after every call.

    Attributes:
        carts: maps users to quantities by product.
        etags: the last seen etag of each cart that has lines.
        generations: the known generation of each cart that has lines.
        ordered_etags: the ordered etag of each cart that an order emptied.
        keys: the idempotency keys used so far, with their additions.
        seen_etags: all etags seen so far, oldest first.
    """

    open_store: OpenStore

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.opened = self.open_store()
        self.store = self.runner.run(self.opened.__aenter__())
        self.prefix = uuid.uuid4().hex  # other state machines use the same server
        self.carts: dict[str, dict[str, int]] = {"ada": {}, "bob": {}}
        self.etags: dict[str, str] = {}
        self.keys: dict[tuple[str, str], tuple[str, int]] = {}
        self.ordered_etags: dict[str, str] = {}
        self.generations: dict[str, str] = {}
        self.seen_etags: list[str] = []

    def teardown(self) -> None:
        self.runner.run(self.opened.__aexit__(None, None, None))
        self.runner.close()

    @rule(user=USERS, product=PRODUCTS, quantity=st.integers(1, 3), key=KEYS)
    def add(self, user: str, product: str, quantity: int, key: str | None) -> None:
        added = (product, quantity)
        previous = self.keys.get((user, key)) if key else None
        try:
            self.runner.run(self.store.add(Addition(self.prefix + user, product, quantity, key)))
        except IdempotencyKeyReused:
            assert previous not in {None, added}
            return
        assert previous in {None, added}
        if previous is None:
            self.carts[user][product] = self.carts[user].get(product, 0) + quantity
            self.etags.pop(user, None)
            self.ordered_etags.pop(user, None)
        if key:
            self.keys[user, key] = added

    @rule(user=USERS, whatever=st.booleans())
    def empty(self, user: str, whatever: bool) -> None:
        etag = None if whatever else self.etags.get(user)
        self.runner.run(self.store.empty(self.prefix + user, etag))
        self._clear(user)

    @rule(user=USERS, data=st.data())
    def empty_with_a_stale_etag(self, user: str, data: st.DataObject) -> None:
        if stale := [etag for etag in self.seen_etags if etag != self.etags.get(user)]:
            self.runner.run(self.store.empty(self.prefix + user, data.draw(st.sampled_from(stale))))

    @rule(user=USERS, product=PRODUCTS, quantity=st.integers(0, 3))
    def set_quantity(self, user: str, product: str, quantity: int) -> None:
        self.runner.run(self.store.set_quantity(NewQuantity(self.prefix + user, product, quantity)))
        if product not in self.carts[user]:
            return
        self.etags.pop(user, None)
        self.carts[user][product] = quantity
        if not quantity:
            del self.carts[user][product]
        if not self.carts[user]:
            self.generations.pop(user)

    @rule(
        user=USERS,
        lines=st.dictionaries(PRODUCTS, st.integers(1, 3)),
        current=st.booleans(),
        whole=st.booleans(),
        data=st.data(),
    )
    def remove_ordered(self, user: str, lines: dict[str, int], current: bool, whole: bool, data: st.DataObject) -> None:
        seen = st.sampled_from(["", *self.seen_etags])
        etag = self.etags.get(user, "") if current else data.draw(seen)
        ordered = etag if whole else etag[:16]
        purchase = Purchase(self.prefix + user, ordered, tuple(Item(*line) for line in lines.items()))
        self.runner.run(self.store.remove_ordered(purchase))
        if etag[:16] != self.generations.get(user):
            return
        after = {product: quantity - lines.get(product, 0) for product, quantity in self.carts[user].items()}
        self._clear(user)
        self.carts[user] = {product: left for product, left in after.items() if left > 0}
        if not self.carts[user]:
            self.ordered_etags[user] = ordered

    @invariant()
    def store_and_model_agree(self) -> None:
        for user, expected in self.carts.items():
            cart = self.runner.run(self.store.read(self.prefix + user))
            assert [(line.product_id, line.quantity) for line in cart.lines] == sorted(expected.items())
            if not expected:
                assert cart.etag == self.ordered_etags.get(user, "")
                continue
            generation = cart.etag[:16]
            assert cart.etag == self.etags.get(user) or (user not in self.etags and cart.etag not in self.seen_etags)
            assert generation == self.generations.get(user, generation)
            assert user in self.generations or generation not in {etag[:16] for etag in self.seen_etags}
            self.etags[user], self.generations[user] = cart.etag, generation
            self.seen_etags.append(cart.etag)

    def _clear(self, user: str) -> None:
        self.carts[user].clear()
        self.etags.pop(user, None)
        self.generations.pop(user, None)


# SQL stores need few examples: they read and write whole carts, which they change with the code of the memory store.
@pytest.mark.parametrize(
    ("open_store", "examples"),
    [
        *(("memory", 40), ("valkey", 40), ("sqlite", 10), ("postgres", 10)),
        *(pytest.param(store, 400, marks=pytest.mark.long) for store in ("memory", "valkey")),
    ],
    indirect=["open_store"],
)
def test_a_store_behaves_like_a_dictionary_with_etags(open_store: OpenStore, examples: int) -> None:
    CartMachine.open_store = staticmethod(open_store)
    run_state_machine_as_test(
        CartMachine,
        settings=settings(
            max_examples=examples,
            stateful_step_count=30,
            deadline=None,
            suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
        ),
    )
