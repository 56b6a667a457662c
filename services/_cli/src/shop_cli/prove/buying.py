"""A customer: fills a cart, orders, tries again, and remembers what it was told."""

import asyncio
import random
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from chassis import errors
from shop.address_pb2 import Address
from shop.cart_pb2 import AddItemRequest, CartItem, GetCartRequest
from shop.cart_pb2_grpc import CartServiceStub
from shop.checkout_pb2 import PlaceOrderRequest
from shop.checkout_pb2_grpc import CheckoutServiceStub
from shop.order_pb2 import OrderResult
from shop.payment_pb2 import CreditCardInfo
from shop_cli.prove.evidence import Answer, Told
from shop_cli.prove.ledgers import CARD_MONTH
from shop_cli.prove.pace import Pace
from shop_cli.prove.plan import Customer, Intent, Line, Wish

PATIENCE_SECONDS = 60.0
_NEXT_CART_SECONDS = 15.0
_DEFINITE = (errors.InvalidArgument, errors.FailedPrecondition, errors.NotFound, errors.OutOfRange)
_CART_EMPTY = "CART_EMPTY"


@dataclass
class Bought:
    """What a customer put into the cart, and what became of the orders, by number."""

    customer: Customer
    added: Counter[str] = field(default_factory=Counter)
    late: Counter[str] = field(default_factory=Counter)
    answers: dict[int, Answer] = field(default_factory=dict)
    cart_known: bool = True


class Buyer:
    """Plays customers against a cart and any number of checkouts.

    Args:
        cart: where things are put.
        checkouts: asked in turn.
        pace: tells when an order may begin.
        timeout_seconds: of each try.
        hasty_share: of tries that hang up after a moment instead, as callers do.
    """

    def __init__(
        self,
        cart: CartServiceStub,
        checkouts: Sequence[CheckoutServiceStub],
        pace: Pace,
        *,
        timeout_seconds: float = 5.0,
        hasty_share: float = 0.1,
    ) -> None:
        self._cart = cart
        self._checkouts = checkouts
        self._pace = pace
        self._timeout_seconds = timeout_seconds
        self._hasty_share = hasty_share

    async def play(self, customer: Customer) -> Bought:
        """Want all the customer's orders, one after the other."""
        bought = Bought(customer)
        for intent in customer.intents:
            await self._pace.wait_for_turn(intent.number)
            try:
                bought.answers[intent.number] = await self._want(intent, bought)
            finally:
                await self._pace.finish()
        return bought

    async def ask(self, intent: Intent, tries: int = 0, timeout_seconds: float | None = None) -> OrderResult:
        """Place the order once; `tries` picks the checkout."""
        seconds = timeout_seconds or self._timeout_seconds
        metadata = (("idempotency-key", intent.key),) if intent.key else ()
        checkout = self._checkouts[(intent.number + tries) % len(self._checkouts)]
        answer = await checkout.PlaceOrder(to_request(intent), timeout=seconds, metadata=metadata)
        return answer.order

    async def left_in_cart(self, user_id: str) -> dict[str, int] | None:
        """What a cart holds; None when it does not tell."""
        try:
            cart = await self._cart.GetCart(GetCartRequest(user_id=user_id))
        except errors.DomainError:
            return None
        return {item.product_id: item.quantity for item in cart.items}

    async def _want(self, intent: Intent, bought: Bought) -> Answer:
        rng = random.Random(intent.seed)  # noqa: S311 - whims, not secrets
        if bought.answers and not await self._cart_is_empty_again(intent, bought):
            return Answer(Told.NOT_ASKED, reason="the order before it left things in the cart")
        for index, line in enumerate(intent.lines):
            if not await self._add(intent, line, f"{intent.number}-{index}", bought.added):
                bought.cart_known = False
                return Answer(Told.NOT_ASKED, reason="the cart did not take everything")
        async with asyncio.TaskGroup() as tasks:
            if intent.late is not None:
                tasks.create_task(self._add_late(intent, intent.late, rng.uniform(0, 0.05), bought))
            ordering = tasks.create_task(self._order(intent, rng))
        return ordering.result()

    async def _cart_is_empty_again(self, intent: Intent, bought: Bought) -> bool:
        """Whether the last order is placed and out of the cart: what is still in it would be bought again."""
        if bought.answers[intent.number - 1].told is not Told.PLACED:
            return False
        give_up_at = time.monotonic() + _NEXT_CART_SECONDS
        while await self.left_in_cart(intent.user_id) != {}:
            if time.monotonic() > give_up_at:
                return False
            await asyncio.sleep(0.05)
        return True

    async def _add_late(self, intent: Intent, line: Line, after_seconds: float, bought: Bought) -> None:
        await asyncio.sleep(after_seconds)
        if not await self._add(intent, line, f"{intent.number}-late", bought.late):
            bought.cart_known = False

    async def _add(self, intent: Intent, line: Line, key: str, added: Counter[str]) -> bool:
        """Add a line under a key, again and again until the cart took it; False when time ran out."""
        request = AddItemRequest(
            user_id=intent.user_id, item=CartItem(product_id=line.product_id, quantity=line.quantity)
        )
        give_up_at = time.monotonic() + PATIENCE_SECONDS
        while time.monotonic() < give_up_at:
            try:
                await self._cart.AddItem(request, timeout=2, metadata=(("idempotency-key", key),))
            except errors.DomainError:
                await asyncio.sleep(0.1)
            else:
                added[line.product_id] += line.quantity
                return True
        return False

    async def _order(self, intent: Intent, rng: random.Random) -> Answer:
        """Try until there is an answer that says what became of the order, or patience ends."""
        give_up_at = time.monotonic() + PATIENCE_SECONDS
        reason = ""
        tries = 0
        while time.monotonic() < give_up_at and (intent.max_tries is None or tries < intent.max_tries):
            try:
                order = await self.ask(intent, tries, _hasty_seconds(rng) if rng.random() < self._hasty_share else None)
            except _DEFINITE as error:
                return _refusal(intent, error, tries + 1)
            except errors.DomainError as error:
                reason = error.reason
                await asyncio.sleep(rng.uniform(0.05, 0.3))
            else:
                answer = Answer(Told.PLACED, order, tries=tries + 1)
                return await self._doubted(intent, answer, rng) if intent.key else answer
            tries += 1
        return Answer(Told.NOTHING, reason=reason, tries=tries)

    async def _doubted(self, intent: Intent, answer: Answer, rng: random.Random) -> Answer:
        """Now and then ask for the same once more at once, as a nervous customer does."""
        if rng.random() > 0.2:  # noqa: PLR2004
            return answer
        again = await self.ask_again(intent, patience_seconds=1.0)
        if again.told is Told.NOTHING or again.order == answer.order:
            return answer
        contradiction = f"asked again at once it was told {again.reason or 'another order'}"
        return replace(answer, contradictions=(contradiction,))

    async def ask_again(self, intent: Intent, patience_seconds: float) -> Answer:
        """Ask for an order that has an answer; returns what is told now."""
        give_up_at = time.monotonic() + patience_seconds
        tries = 1
        while True:
            try:
                return Answer(Told.PLACED, await self.ask(intent, tries))
            except _DEFINITE as error:
                return Answer(Told.REFUSED, reason=error.reason)
            except errors.DomainError as error:
                if time.monotonic() > give_up_at:
                    return Answer(Told.NOTHING, reason=error.reason)
                await asyncio.sleep(0.1)
                tries += 1


def _refusal(intent: Intent, error: errors.DomainError, tries: int) -> Answer:
    if error.reason == _CART_EMPTY and tries > 1 and intent.key is None:
        return Answer(Told.CART_GONE, reason=error.reason, tries=tries)
    unforeseen = intent.wish is Wish.GOODS
    contradictions = (f"it was refused, {error.reason}, and nothing is wrong with it",) if unforeseen else ()
    return Answer(Told.REFUSED, reason=error.reason, tries=tries, contradictions=contradictions)


def _hasty_seconds(rng: random.Random) -> float:
    return rng.uniform(0.005, 0.2)


def to_request(intent: Intent) -> PlaceOrderRequest:
    """The order as it is asked for."""
    return PlaceOrderRequest(
        user_id=intent.user_id,
        user_currency=intent.currency,
        email=intent.email,
        address=Address(street_address=intent.street, city="Hamburg", state="HH", country="Germany", zip_code=20095),
        credit_card=CreditCardInfo(
            credit_card_number=intent.card_number,
            credit_card_cvv=123,
            credit_card_expiration_year=intent.card_year,
            credit_card_expiration_month=CARD_MONTH,
        ),
    )
