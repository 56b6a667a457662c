"""Histories are accepted if and only if a sequence of the same calls explains them."""

import math
from collections.abc import Callable, Iterable

import pytest

from shop_lab.world.histories import Histories, Times
from shop_lab.world.linearizability import Call, State, is_linearizable

Step = Callable[[Histories], None]

MUGS = {"mug": 2}
MUGS_AND_HAT = {"mug": 2, "hat": 1}


def write(value: int, invoked: float, returned: float) -> Call:
    return Call(f"write {value}", invoked, returned, lambda _: [value])


def read(value: int, invoked: float, returned: float) -> Call:
    def apply(state: State) -> Iterable[State]:
        return [state] if state == value else []

    return Call(f"read {value}", invoked, returned, apply)


@pytest.mark.parametrize(
    ("calls", "expected"),
    [
        ([], True),
        ([write(1, 0, 1), read(1, 2, 3)], True),
        ([write(1, 0, 1), read(0, 2, 3)], False),
        ([write(1, 0, 3), read(0, 1, 2)], True),
        ([write(1, 0, 3), read(1, 1, 2)], True),
        ([write(1, 0, 9), read(1, 1, 2), read(0, 3, 4)], False),
        ([write(1, 0, math.inf), read(0, 5, 6)], True),
        ([write(1, 0, math.inf), read(0, 5, 6), read(1, 7, 8)], True),
        ([write(1, 0, math.inf), read(1, 5, 6), read(0, 7, 8)], False),
        ([write(1, 0, 9), write(2, 0, 9), read(2, 10, 11), read(1, 12, 13)], False),
    ],
)
def test_a_register_has_the_history_of_a_sequence_of_calls(calls: list[Call], expected: bool) -> None:
    assert is_linearizable(calls, 0) is expected


@pytest.fixture
def histories() -> Histories:
    """A cart to which two mugs were added, and which order 1 bought."""
    histories = Histories()
    histories.record_addition("ada", "1-0", "mug", 2, times=Times(0, 1))
    histories.record_order("ada", 1, MUGS, Times(10, 20))
    return histories


def is_explained(histories: Histories) -> bool:
    return not histories.contradictions(["ada"], ["key"])


def read_cart(began: float, contents: dict[str, int]) -> Step:
    return lambda histories: histories.record_read("ada", contents, Times(began, began + 1))


def add(began: float, product_id: str, quantity: int) -> Step:
    times = Times(began, began + 1)
    return lambda histories: histories.record_addition("ada", f"at {began}", product_id, quantity, times=times)


def order(began: float, contents: dict[str, int]) -> Step:
    return lambda histories: histories.record_order("ada", 2, contents, Times(began, began + 10))


@pytest.mark.parametrize(
    ("explained", "steps"),
    [
        pytest.param(True, [read_cart(21, MUGS), read_cart(23, {})], id="emptied by its order sooner or later"),
        pytest.param(False, [read_cart(21, {}), read_cart(23, MUGS)], id="an emptied cart does not fill itself"),
        pytest.param(False, [read_cart(8, {})], id="not emptied before it was ordered"),
        pytest.param(True, [add(15, "hat", 1), read_cart(21, {"hat": 1})], id="what was added during an order is left"),
        pytest.param(False, [add(15, "hat", 1), read_cart(21, {})], id="what was added during an order is not lost"),
        pytest.param(False, [order(30, MUGS_AND_HAT)], id="an order buys what is in the cart"),
        pytest.param(False, [order(10, MUGS)], id="two orders do not buy the same"),
        pytest.param(True, [read_cart(21, {}), add(23, "mug", 2), order(30, MUGS)], id="filled again, ordered again"),
        pytest.param(True, [add(15, "hat", 1), order(10, {"hat": 1})], id="what another order has left is ordered"),
        pytest.param(False, [add(21, "hat", 1), order(30, {"mug": 2, "hat": 1})], id="bought items are not ordered"),
        pytest.param(False, [read_cart(2, {"mug": 4})], id="an addition that is delivered twice has one effect"),
    ],
)
def test_a_cart_has_the_history_of_sequential_calls(histories: Histories, explained: bool, steps: list[Step]) -> None:
    for record in steps:
        record(histories)
    assert is_explained(histories) is explained


def test_a_key_has_one_response(histories: Histories) -> None:
    histories.record_response("key", b"order 1", Times(0, 1))
    histories.record_response("key", b"order 1", Times(2, 3))
    assert is_explained(histories)
    histories.record_response("key", b"order 2", Times(4, 5))
    assert not is_explained(histories)
