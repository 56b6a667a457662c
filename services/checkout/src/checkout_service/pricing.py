"""What an order costs: the reads before it has any effect, each as early as it can be made."""

import asyncio
from collections.abc import Coroutine

from chassis.money import Money
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


async def price(request: OrderRequest, address: Address, cart: Cart, quotes: Quotes) -> Order:
    """Freeze the order's prices, in the request's currency.

    Each line is its unit price times its quantity, converted and rounded to the currency's minor unit; shipping is
    converted and rounded alike. Raises CartEmpty, ProductWithdrawn, QuoteRefused, NothingToPay, OutOfRange,
    InvalidArgument for an unknown currency, Unavailable.
    """
    lines = require_lines(cart)
    shipping, *prices = await _all(
        quotes.shipping(address, lines), *(quotes.unit_price(line.product_id) for line in lines)
    )
    amounts = [(unit * line.quantity).in_range() for unit, line in zip(prices, lines, strict=True)]
    different = list(dict.fromkeys([shipping, *amounts]))
    converted = await _all(*(_convert(amount, request.user_currency, quotes) for amount in different))
    costs = dict(zip(different, map(rounded, converted), strict=True))
    ordered = (
        OrderLine(line.product_id, line.quantity, costs[amount]) for line, amount in zip(lines, amounts, strict=True)
    )
    asked = (request.user_id, request.email, cart.etag or "", address)
    return check_total(Order(new_order_id(), *asked, tuple(ordered), costs[shipping]))


async def _convert(amount: Money, to_code: str, quotes: Quotes) -> Money:
    return amount if amount.currency_code == to_code else await quotes.convert(amount, to_code)


async def _all(*reads: Coroutine[None, None, Money]) -> list[Money]:
    """Await all at once; the first failure ends the others and is raised as it is."""
    tasks = [asyncio.ensure_future(read) for read in reads]
    try:
        return await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
