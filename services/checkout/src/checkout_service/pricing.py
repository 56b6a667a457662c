"""Prices an order from the peers' quotes, with as many reads in parallel as possible."""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from chassis.money import round_to_minor_unit
from checkout_service.domain import (
    Address,
    Cart,
    Order,
    OrderLine,
    OrderRequest,
    require_chargeable,
    require_lines,
)
from checkout_service.ports import Quotes

A = TypeVar("A")
B = TypeVar("B")


async def price(order_id: str, request: OrderRequest, address: Address, cart: Cart, quotes: Quotes) -> Order:
    """Return a new order of this id with frozen prices in the request's currency.

    A line costs its unit price times its quantity, converted and then rounded to the currency's minor unit; shipping is
    converted and rounded alike. Raises CartEmpty, ProductWithdrawn, QuoteRefused, NothingToPay, OutOfRange,
    InvalidArgument for an unknown currency, Unavailable.
    """
    lines = require_lines(cart)
    shipping, prices = await _gather_or_cancel(
        quotes.shipping(address, lines), quotes.unit_prices([line.product_id for line in lines])
    )
    amounts = [(unit * line.quantity).in_range() for unit, line in zip(prices, lines, strict=True)]
    distinct = list(dict.fromkeys([shipping, *amounts]))
    converted = await quotes.convert(distinct, request.user_currency)
    costs = dict(zip(distinct, map(round_to_minor_unit, converted), strict=True))
    order = Order(
        order_id,
        request.user_id,
        request.email,
        cart.etag or "",
        address,
        tuple(
            OrderLine(line.product_id, line.quantity, costs[amount])
            for line, amount in zip(lines, amounts, strict=True)
        ),
        costs[shipping],
    )
    return require_chargeable(order)


async def _gather_or_cancel(quote: Coroutine[Any, Any, A], prices: Coroutine[Any, Any, B]) -> tuple[A, B]:
    """Await both concurrently. The first failure cancels the other one and is raised."""
    tasks = asyncio.ensure_future(quote), asyncio.ensure_future(prices)
    try:
        return await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
