"""Histories of calls, and the sequential models of a cart and of an idempotency key with which they must agree.

A cart's model is exact about its contents: an addition takes effect once per key, an order takes all that is in the
cart, and no other order takes anything until that has disappeared, at some later time.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import cast

from shop_lab.world.linearizability import Call, State, is_linearizable

Quantities = frozenset[tuple[str, int]]
"""Quantities by product id."""


@dataclass(frozen=True, slots=True)
class CartState:
    """The state of a cart.

    Attributes:
        added: the keys of the additions that had their effect.
        taken: what the orders have bought, by order number.
        cleared: the numbers of the orders whose items were removed.
    """

    contents: Quantities = frozenset()
    added: frozenset[str] = frozenset()
    taken: frozenset[tuple[int, Quantities]] = frozenset()
    cleared: frozenset[int] = frozenset()


EMPTY_CART = CartState()
UNUSED_KEY = b""


def quantities(contents: Mapping[str, int]) -> Quantities:
    """Return the quantities of a cart or of an order."""
    return frozenset(contents.items())


class Histories:
    """Records calls by the cart or key that they are about."""

    def __init__(self) -> None:
        self._carts: defaultdict[str, list[Call]] = defaultdict(list)
        self._keys: defaultdict[str, list[Call]] = defaultdict(list)

    def record_addition(self, user_id: str, key: str, product_id: str, quantity: int, *, times: "Times") -> None:
        """Record an addition to a cart under a key, over all tries."""

        def add(state: CartState) -> Iterable[CartState]:
            if key in state.added:
                return [state]
            contents = quantities(Counter(dict(state.contents)) + Counter({product_id: quantity}))
            return [replace(state, contents=contents, added=state.added | {key})]

        self._record_cart_call(user_id, f"add {quantity} {product_id}", times, add)

    def record_read(self, user_id: str, contents: Mapping[str, int], times: "Times") -> None:
        """Record that a cart was read with these contents."""

        def read(state: CartState) -> Iterable[CartState]:
            return [state] if state.contents == quantities(contents) else []

        self._record_cart_call(user_id, f"read {dict(contents)}", times, read)

    def record_order(self, user_id: str, number: int, bought: Mapping[str, int] | None, times: "Times") -> None:
        """Record an order over all tries; `bought` is None if its contents are unknown."""

        def order(state: CartState) -> Iterable[CartState]:
            before = dict(state.taken).get(number)
            if before is not None:
                return [state] if bought is None or quantities(bought) == before else []
            is_held = len(state.cleared) < len(state.taken)
            if not state.contents or is_held or (bought is not None and quantities(bought) != state.contents):
                return []
            return [replace(state, taken=state.taken | {(number, state.contents)})]

        def clear(state: CartState) -> Iterable[CartState]:
            before = dict(state.taken).get(number)
            if before is None or number in state.cleared:
                return []
            left = quantities(Counter(dict(state.contents)) - Counter(dict(before)))
            return [replace(state, contents=left, cleared=state.cleared | {number})]

        self._record_cart_call(user_id, f"order {number} buys {bought}", times, order)
        self._record_cart_call(user_id, f"clear what order {number} bought", Times(times.invoked), clear)

    def record_response(self, key: str, response: bytes, times: "Times") -> None:
        """Record a definite response, an order or a refusal, to a request with an idempotency key."""

        def respond(state: State) -> Iterable[State]:
            return [response] if state in {UNUSED_KEY, response} else []

        self._keys[key].append(Call("respond", times.invoked, times.returned, respond))

    def contradictions(self, user_ids: Iterable[str], keys: Iterable[str]) -> list[str]:
        """Return the histories of these carts and keys that no sequence of the same calls explains, in words."""
        carts = [(f"the cart of {user_id}", self._carts[user_id], EMPTY_CART) for user_id in user_ids]
        used = [(f"the key {key}", self._keys[key], UNUSED_KEY) for key in keys]
        return [
            f"{subject}: {'; '.join(call.name for call in sorted(calls, key=lambda call: call.invoked))}"
            for subject, calls, initial in [*carts, *used]
            if not is_linearizable(calls, initial)
        ]

    def _record_cart_call(
        self, user_id: str, name: str, times: "Times", apply: Callable[[CartState], Iterable[CartState]]
    ) -> None:
        any_state = cast("Callable[[State], Iterable[State]]", apply)
        self._carts[user_id].append(Call(name, times.invoked, times.returned, any_state))


@dataclass(frozen=True, slots=True)
class Times:
    """When a call began and when its result was received, in seconds; infinite without a result."""

    invoked: float
    returned: float = math.inf
