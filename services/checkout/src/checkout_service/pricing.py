"""What an order costs: the reads before it has any effect, each as early as it can be made."""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from checkout_service.domain import (
    Address,
    Cart,
    Order,
    OrderLine,
    OrderRequest,
    Quotes,
    check_total,
    new_order_id,
    require_lines,
    rounded,
)

A = TypeVar("A")
B = TypeVar("B")


async def price(request: OrderRequest, address: Address, cart: Cart, quotes: Quotes) -> Order:
    """Freeze the order's prices, in the request's currency.

    Each line is its unit price times its quantity, converted and rounded to the currency's minor unit; shipping is
    converted and rounded alike. Raises CartEmpty, ProductWithdrawn, QuoteRefused, NothingToPay, OutOfRange,
    InvalidArgument for an unknown currency, Unavailable.
    """
    lines = require_lines(cart)
    shipping, prices = await _together(
        quotes.shipping(address, lines), quotes.unit_prices([line.product_id for line in lines])
    )
    amounts = [(unit * line.quantity).in_range() for unit, line in zip(prices, lines, strict=True)]
    different = list(dict.fromkeys([shipping, *amounts]))
    converted = await quotes.convert(different, request.user_currency)
    costs = dict(zip(different, map(rounded, converted), strict=True))
    ordered = (
        OrderLine(line.product_id, line.quantity, costs[amount]) for line, amount in zip(lines, amounts, strict=True)
    )
    asked = (request.user_id, request.email, cart.etag or "", address)
    return check_total(Order(new_order_id(), *asked, tuple(ordered), costs[shipping]))


async def _together(quote: Coroutine[Any, Any, A], prices: Coroutine[Any, Any, B]) -> tuple[A, B]:
    """Await both at once; the first failure ends the other one and is raised as it is."""
    tasks = asyncio.ensure_future(quote), asyncio.ensure_future(prices)
    try:
        return await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
