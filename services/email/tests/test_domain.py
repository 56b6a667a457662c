from collections.abc import Callable

import pytest

from chassis.errors import InvalidArgument
from chassis.values.money import MAX_UNITS, AmountOutOfRange, Money
from chassis.values.orders import Address, OrderLine
from email_service.domain import Order, label, message_id_of

ADDRESS = Address("1 Main Street", "Springfield", "IL", "US", 62704)


def line(product_id: str = "mug", cost: Money | None = None) -> OrderLine:
    return OrderLine(product_id, 2, cost or Money.of("EUR", 10, 250_000_000))


def order(
    *lines: OrderLine,
    order_id: str = "o-1",
    tracking_id: str = "",
    shipping: Money | None = None,
    address: Address = ADDRESS,
) -> Order:
    return Order(order_id, tracking_id, lines, shipping or Money.of("EUR", 5), address)


def test_the_total_is_the_sum_of_lines_and_shipping() -> None:
    assert order(line(), line()).total == Money.of("EUR", 25, 500_000_000)


def test_a_total_beyond_64_bits_is_out_of_range() -> None:
    with pytest.raises(AmountOutOfRange):
        _ = order(line(cost=Money.of("EUR", MAX_UNITS))).total


@pytest.mark.parametrize(
    ("invalid", "field"),
    [
        (lambda: order(order_id=""), "order.order_id"),
        (lambda: order(order_id="x" * 129), "order.order_id"),
        (lambda: order(tracking_id="x" * 257), "order.shipping_tracking_id"),
        (lambda: order(*[line()] * 1001), "order.items"),
        (lambda: order(line(), line("x" * 257)), "order.items[1].item.product_id"),
        (lambda: order(line(cost=Money.of("USD", 1))), "order.items[0].cost.currency_code"),
        (lambda: order(address=Address("x" * 257, "", "", "", 0)), "order.shipping_address.street_address"),
        (lambda: order(address=Address("", "", "", "x" * 257, 0)), "order.shipping_address.country"),
    ],
)
def test_an_order_beyond_a_limit_is_rejected_with_the_name_of_a_field(invalid: Callable[[], Order], field: str) -> None:
    with pytest.raises(InvalidArgument) as refused:
        invalid()
    assert [violation.field for violation in refused.value.violations] == [field]


@pytest.mark.parametrize(
    ("address", "lines"),
    [
        (ADDRESS, ["1 Main Street", "Springfield, IL 62704", "US"]),
        (Address("Rear house\n 7 Elm\n\n", "Bonn", "", "DE", 53111), ["Rear house", "7 Elm", "Bonn, 53111", "DE"]),
        (Address("1 Quay", "Boston", "MA", "United States", 2134), ["1 Quay", "Boston, MA 02134", "United States"]),
        (Address("", "", "", "FR", 0), ["FR"]),
        (Address("", "", "", "", 0), []),
    ],
)
def test_an_address_has_no_blank_lines(address: Address, lines: list[str]) -> None:
    assert label(address) == lines


def test_a_message_has_the_id_of_its_order() -> None:
    assert message_id_of("3f2b8c1e-7a10") == "3f2b8c1e-7a10"


@pytest.mark.parametrize(
    "order_id", ["../../etc/passwd", "..", ".", "a/b", "-rf", "a b", "a\x00b", "ü", "a>b", "x" * 129]
)
def test_an_order_id_that_is_unsafe_in_a_header_is_hashed(order_id: str) -> None:
    assert message_id_of(order_id).startswith("sha256-")
    assert message_id_of(order_id) != message_id_of(order_id + "2")
