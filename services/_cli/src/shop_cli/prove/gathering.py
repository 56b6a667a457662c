"""Gathers the evidence after a run: waits for quiet, reads the ledgers, asks for every order once more."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable
from typing import TypeVar

from chassis import errors
from chassis.wire import money_from_wire
from shop_cli.prove.buying import Bought, Buyer
from shop_cli.prove.evidence import Answer, CartStory, Evidence, Recorded, Story, Told
from shop_cli.prove.ledgers import Ledgers, join, read_charges
from shop_cli.prove.plan import Intent
from shop_cli.prove.stage import Stage
from shop_internal.orders_pb2 import GetOrderRequest, ListOrdersRequest, OrderState
from shop_internal.orders_pb2_grpc import OrderJournalStub

QUIET_SECONDS = 30.0
_AT_ONCE = 16
_UNFINISHED = (OrderState.ORDER_STATE_CHARGING, OrderState.ORDER_STATE_SHIPPED, OrderState.ORDER_STATE_VOIDING)

A = TypeVar("A")
B = TypeVar("B")


async def wait_for_quiet(journal: OrderJournalStub) -> float | None:
    """Wait until no order is left unfinished; returns the seconds, None when that takes too long."""
    started = time.monotonic()
    while time.monotonic() - started < QUIET_SECONDS:
        try:
            unfinished = await journal.ListOrders(ListOrdersRequest(states=_UNFINISHED, limit=1))
        except errors.DomainError:
            await asyncio.sleep(0.2)
            continue
        if not unfinished.orders:
            return time.monotonic() - started
        await asyncio.sleep(0.1)
    return None


async def gather(
    stage: Stage, buyer: Buyer, journal: OrderJournalStub | None, bought: Iterable[Bought], quiet_seconds: float | None
) -> Evidence:
    """Put together what is known of every order and cart. Without a journal nothing is asked for again."""
    played = sorted(bought, key=lambda each: each.customer.intents[0].number)
    answers = {number: answer for each in played for number, answer in each.answers.items()}
    intents = [intent for each in played for intent in each.customer.intents]
    carts = await _each([each for each in played if each.cart_known], lambda each: _cart(buyer, each))
    ledgers = join(intents, read_charges(stage.payment_url), stage.manifest, stage.outbox, stage.hmac_key)

    async def story(intent: Intent) -> Story:
        return await _story(intent, answers[intent.number], ledgers, buyer, journal)

    return Evidence(tuple(await _each(intents, story)), tuple(carts), quiet_seconds, ledgers.strangers)


async def _each(items: Iterable[A], work: Callable[[A], Awaitable[B]]) -> list[B]:
    room = asyncio.Semaphore(_AT_ONCE)

    async def one(item: A) -> B:
        async with room:
            return await work(item)

    return await asyncio.gather(*map(one, items))


async def _cart(buyer: Buyer, bought: Bought) -> CartStory:
    left = await buyer.left_in_cart(bought.customer.user_id)
    return CartStory(bought.customer, bought.added, bought.late, left)


async def _story(
    intent: Intent, answer: Answer, ledgers: Ledgers, buyer: Buyer, journal: OrderJournalStub | None
) -> Story:
    number = intent.number
    charges, shipments, mails = (
        ledgers.charges.get(number, ()),
        ledgers.shipments.get(number, ()),
        ledgers.mails.get(number, ()),
    )
    recorded = replayed = None
    if journal is not None:
        order_id = answer.order.order_id if answer.order else mails[0].order_id if mails else None
        recorded = await _recorded(journal, order_id) if order_id else None
        if answer.told is Told.PLACED and intent.key:
            replayed = await buyer.ask_again(intent, QUIET_SECONDS)
    return Story(intent, answer, charges, shipments, mails, recorded, replayed)


async def _recorded(journal: OrderJournalStub, order_id: str) -> Recorded | None:
    give_up_at = time.monotonic() + QUIET_SECONDS
    while True:
        try:
            order = (await journal.GetOrder(GetOrderRequest(order_id=order_id))).order
            break
        except errors.NotFound:
            return None
        except errors.Unavailable:
            if time.monotonic() > give_up_at:
                raise
            await asyncio.sleep(0.1)
    state = OrderState.Name(order.state).removeprefix("ORDER_STATE_")
    return Recorded(state, money_from_wire(order.total))
