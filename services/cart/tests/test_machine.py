"""Any sequence of calls leaves a store as it leaves a dictionary."""

import asyncio
import uuid
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager

import hypothesis.strategies as st
from hypothesis import HealthCheck, settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from cart_service.domain import Addition, CartStore
from chassis.errors import IdempotencyKeyReused

OpenStore = Callable[..., AbstractAsyncContextManager[CartStore]]

USERS = st.sampled_from(["ada", "bob"])
PRODUCTS = st.sampled_from(["axe", "pan", "tent"])
KEYS = st.none() | st.sampled_from(["k1", "k2", "k3"])


class CartMachine(RuleBasedStateMachine):
    """A store beside a model: quantities by user and product, known keys, and the etags ever seen."""

    open_store: OpenStore

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.opened = self.open_store()
        self.store = self.runner.run(self.opened.__aenter__())
        self.prefix = uuid.uuid4().hex  # a server outlives this machine
        self.carts: dict[str, dict[str, int]] = {"ada": {}, "bob": {}}
        self.etags: dict[str, str] = {}
        self.keys: dict[tuple[str, str], tuple[str, int]] = {}
        self.seen: set[str] = set()

    def teardown(self) -> None:
        self.runner.run(self.opened.__aexit__(None, None, None))
        self.runner.close()

    @rule(user=USERS, product=PRODUCTS, quantity=st.integers(1, 3), key=KEYS)
    def add(self, user: str, product: str, quantity: int, key: str | None) -> None:
        added = (product, quantity)
        known = self.keys.get((user, key)) if key else None
        try:
            self.runner.run(self.store.add(Addition(self.prefix + user, product, quantity, key)))
        except IdempotencyKeyReused:
            assert known not in {None, added}
            return
        assert known in {None, added}
        if known is None:
            self.carts[user][product] = self.carts[user].get(product, 0) + quantity
            self.etags.pop(user, None)
        if key:
            self.keys[user, key] = added

    @rule(user=USERS)
    def empty(self, user: str) -> None:
        self.runner.run(self.store.empty(self.prefix + user, None))
        self._forget(user)

    @rule(user=USERS)
    def empty_by_the_etag_last_read(self, user: str) -> None:
        if etag := self.etags.get(user):
            self.runner.run(self.store.empty(self.prefix + user, etag))
            self._forget(user)

    @rule(user=USERS, data=st.data())
    def empty_by_a_stale_etag(self, user: str, data: st.DataObject) -> None:
        if stale := sorted(self.seen - {self.etags.get(user)}):
            self.runner.run(self.store.empty(self.prefix + user, data.draw(st.sampled_from(stale))))

    @invariant()
    def the_store_tells_what_the_model_does(self) -> None:
        for user, expected in self.carts.items():
            cart = self.runner.run(self.store.read(self.prefix + user))
            assert [(line.product_id, line.quantity) for line in cart.lines] == sorted(expected.items())
            assert (cart.etag == self.etags.get(user)) == (cart.etag in self.seen)
            if expected and user in self.etags:
                assert cart.etag == self.etags[user]
            self.seen.add(cart.etag)
            if expected:
                self.etags[user] = cart.etag

    def _forget(self, user: str) -> None:
        self.carts[user].clear()
        self.etags.pop(user, None)


def test_a_store_behaves_like_a_dictionary_with_etags(open_store: OpenStore) -> None:
    CartMachine.open_store = staticmethod(open_store)
    run_state_machine_as_test(
        CartMachine,
        settings=settings(
            max_examples=60,
            stateful_step_count=30,
            deadline=None,
            suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
        ),
    )
