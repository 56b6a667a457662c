"""Prices an order from the peers' quotes. Nearly all of them are cached, so tasks of their own would cost more time."""

from chassis.values.money import round_to_minor_unit
from checkout_service.domain import Cart, Order, OrderLine, require_chargeable, require_lines
from checkout_service.ports import Quotes
from checkout_service.requests import OrderRequest, require_address


async def price(order_id: str, request: OrderRequest, cart: Cart, quotes: Quotes) -> Order:
    """Return a new order of this id with frozen prices in the request's currency.

    A line costs its unit price times its quantity, converted and then rounded to the currency's minor unit; shipping is
    converted and rounded alike. Raises CartEmpty, ProductWithdrawn, QuoteRefused, NothingToPay, OutOfRange,
    InvalidArgument for an unknown currency, Unavailable.
    """
    lines, address = require_lines(cart), require_address(request)
    prices = await quotes.unit_prices([line.product_id for line in lines])
    shipping = await quotes.shipping(address, lines)
    # Quantity before rounding: a line that is rounded piece by piece costs another amount.
    amounts = [(unit * line.quantity).in_range() for unit, line in zip(prices, lines, strict=True)]
    converted = await quotes.convert([shipping, *amounts], request.user_currency)
    shipping_cost, *costs = map(round_to_minor_unit, converted)
    order = Order(
        order_id,
        request.user_id,
        request.email,
        cart.etag or "",
        address,
        tuple(OrderLine(line.product_id, line.quantity, cost) for line, cost in zip(lines, costs, strict=True)),
        shipping_cost,
    )
    return require_chargeable(order)
