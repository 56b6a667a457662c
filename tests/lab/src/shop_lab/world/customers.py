"""Simulate customers: fill a cart, place orders, retry, and record the responses."""

import asyncio
import math
import random
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from chassis import errors
from shop.cart_pb2_grpc import CartServiceStub
from shop.checkout_pb2_grpc import CheckoutServiceStub
from shop_lab.world.customer_calls import DEFINITE_ERRORS, PATIENCE_SECONDS, CustomerCalls
from shop_lab.world.customer_plan import Customer, Intent, Line, OrderKind
from shop_lab.world.evidence import ClientOutcome, OrderResponse
from shop_lab.world.fake_peers.refusing import CARD_REFUSED, NO_DELIVERY
from shop_lab.world.histories import Times
from shop_lab.world.progress_gate import ProgressGate

HANGUP_SHARE = 0.1
REPEAT_SHARE = 0.2
_NEXT_CART_SECONDS, _NEXT_CART_POLL_SECONDS = 15.0, 0.1
_CART_EMPTY = "CART_EMPTY"
_PERHAPS_PLACED = frozenset({ClientOutcome.PLACED, ClientOutcome.CART_EMPTIED, ClientOutcome.UNKNOWN})
_RIVAL_SECONDS = 0.5
_BOUGHT_BY_RIVAL = frozenset({_CART_EMPTY, "CART_ORDERED"})
_ALLOWED_REFUSALS = frozenset({CARD_REFUSED, NO_DELIVERY, "CHARGE_VOIDED", "ORDER_NEEDS_REVIEW"})
"""Reasons for which even a valid order is refused: a peer refuses it, as a fault, or operators must settle it.

CHARGE_VOIDED: shipping had refused, and the worker that had fenced the shipment could not record the reason.
"""


@dataclass
class CustomerResult:
    """What a customer added to the cart, and the responses to the orders by number.

    Attributes:
        cart_known: False if it is unknown whether an addition to the cart took effect.
    """

    customer: Customer
    added: Counter[str] = field(default_factory=Counter)
    added_late: Counter[str] = field(default_factory=Counter)
    responses: dict[int, OrderResponse] = field(default_factory=dict)
    cart_known: bool = True


class CustomerSimulator(CustomerCalls):
    """Simulates customers of one cart service and any number of checkouts.

    Args:
        cart: the cart service.
        checkouts: called in turn, starting at the order's number.
        gate: delays the start of orders.
        timeout_seconds: of each try to order.
        hangup_share: of the tries that are cancelled after at most 0.2 s, as impatient callers do.
        repeat_share: of the placed orders with a key whose request is repeated at once.
        max_unanswered: after so many customers have waited in vain for a definite response, the run has failed: the
            others give up at once, and the rest skip their orders.
    """

    def __init__(
        self,
        cart: CartServiceStub,
        checkouts: Sequence[CheckoutServiceStub],
        gate: ProgressGate,
        *,
        timeout_seconds: float = 5.0,
        hangup_share: float = HANGUP_SHARE,
        repeat_share: float = REPEAT_SHARE,
        max_unanswered: int | None = None,
    ) -> None:
        super().__init__(cart, checkouts, timeout_seconds)
        self._gate = gate
        self._hangup_share = hangup_share
        self._repeat_share = repeat_share
        self._max_unanswered = max_unanswered
        self._unanswered = 0

    async def run(self, customer: Customer) -> CustomerResult:
        """Place all the customer's orders, one after the other, or at about the same time if they are rivals."""
        result = CustomerResult(customer)
        if customer.intents[0].rival is not None:
            await self._order_as_rivals(customer, result)
            return result
        for intent in customer.intents:
            await self._gate.wait_until_open(intent.number)
            try:
                result.responses[intent.number] = await self._fill_cart_and_order(intent, result)
            finally:
                await self._gate.finish()
            if intent.refill is not None and await self._is_cart_emptied(intent.number, result):
                await self._add_late(intent, intent.refill, "refill", result)
        return result

    @property
    def has_failed(self) -> bool:
        """Whether more customers than allowed have waited in vain."""
        return self._max_unanswered is not None and self._unanswered > self._max_unanswered

    async def _order_as_rivals(self, customer: Customer, result: CustomerResult) -> None:
        """Fill the cart once and place all orders of it."""
        await self._gate.wait_until_open(max(intent.number for intent in customer.intents))
        skipped = OrderResponse(ClientOutcome.SKIPPED) if self.has_failed else None
        failure = skipped or await self.fill_cart(customer.intents[0], result)

        async def order(intent: Intent) -> None:
            rng = random.Random(intent.seed)  # noqa: S311 - a schedule, not a secret
            await asyncio.sleep(rng.uniform(0, _RIVAL_SECONDS))
            result.responses[intent.number] = failure or await self.order(intent, rng)
            await self._gate.finish()

        await asyncio.gather(*map(order, customer.intents))

    async def _fill_cart_and_order(self, intent: Intent, result: CustomerResult) -> OrderResponse:
        if self.has_failed:
            return OrderResponse(ClientOutcome.SKIPPED)
        rng = random.Random(intent.seed)  # noqa: S311 - a schedule, not a secret
        if result.responses and not await self._is_cart_emptied(intent.number - 1, result):
            return OrderResponse(ClientOutcome.SKIPPED)
        if failure := await self.fill_cart(intent, result):
            return failure
        async with asyncio.TaskGroup() as tasks:
            if intent.late_line is not None:
                tasks.create_task(self.add_late_line(intent, intent.late_line, rng.uniform(0, 0.05), result))
            ordering = tasks.create_task(self.order(intent, rng))
        return ordering.result()

    async def fill_cart(self, intent: Intent, result: CustomerResult) -> OrderResponse | None:
        """Add the order's lines to the cart; on timeout return the result of the order."""
        for index, line in enumerate(intent.lines):
            if not await self.add_line(intent.user_id, line, f"{intent.number}-{index}"):
                result.cart_known = False
                return OrderResponse(ClientOutcome.NOT_SUBMITTED, reason="the cart could not be filled")
            result.added[line.product_id] += line.quantity
        return None

    async def _is_cart_emptied(self, number: int, result: CustomerResult) -> bool:
        """Wait until an order's items are removed; items still in the cart would be bought again.

        Return False if the order was not placed, or on timeout.
        """
        is_placed = result.responses[number].outcome is ClientOutcome.PLACED
        return is_placed and await self.wait_until_cart_is_empty(result.customer.user_id)

    async def wait_until_cart_is_empty(self, user_id: str) -> bool:
        """Return False on timeout."""
        deadline = self._now() + _NEXT_CART_SECONDS
        while await self.cart_contents(user_id) != {}:
            if self._now() > deadline:
                return False
            await asyncio.sleep(_NEXT_CART_POLL_SECONDS)
        return True

    async def add_late_line(self, intent: Intent, line: Line, delay_seconds: float, result: CustomerResult) -> None:
        """Add a line to the cart that is not part of the order which is being placed."""
        await asyncio.sleep(delay_seconds)
        await self._add_late(intent, line, "late", result)

    async def _add_late(self, intent: Intent, line: Line, name: str, result: CustomerResult) -> None:
        if await self.add_line(intent.user_id, line, f"{intent.number}-{name}"):
            result.added_late[line.product_id] += line.quantity
        else:
            result.cart_known = False

    async def order(self, intent: Intent, rng: random.Random) -> OrderResponse:
        """Place the order and record what it bought."""
        started = self._now()
        response = await self._order_with_retries(intent, rng)
        bought = response.order and {line.item.product_id: line.item.quantity for line in response.order.items}
        if response.outcome in _PERHAPS_PLACED or response.reason in _BOUGHT_BY_RIVAL:
            is_placed = response.outcome in {ClientOutcome.PLACED, ClientOutcome.CART_EMPTIED}
            ended = self._now() if is_placed else math.inf
            self.histories.record_order(intent.user_id, intent.number, bought, Times(started, ended))
        return response

    async def _order_with_retries(self, intent: Intent, rng: random.Random) -> OrderResponse:
        """Place the order, with retries until there is a definite response or the customer gives up."""
        deadline = self._now() + PATIENCE_SECONDS
        reason = ""
        tries = 0
        while self._now() < deadline and not self.has_failed and (intent.max_tries is None or tries < intent.max_tries):
            timeout_seconds = rng.uniform(0.005, 0.2) if rng.random() < self._hangup_share else None
            try:
                order = await self.place_order(intent, tries, timeout_seconds)
            except DEFINITE_ERRORS as error:
                return self._refusal(intent, error, tries + 1)
            except errors.DomainError as error:
                reason = error.reason
                await asyncio.sleep(self.pause_seconds(intent, rng))
            else:
                response = OrderResponse(ClientOutcome.PLACED, order, tries=tries + 1, received_at=time.time())
                return await self._sometimes_repeat(intent, response, rng) if intent.key else response
            tries += 1
        self._unanswered += intent.max_tries is None
        return OrderResponse(ClientOutcome.UNKNOWN, reason=reason, tries=tries)

    def _refusal(self, intent: Intent, error: errors.DomainError, tries: int) -> OrderResponse:
        if error.reason == _CART_EMPTY and tries > 1 and intent.key is None and not self.has_rival(intent):
            return OrderResponse(ClientOutcome.CART_EMPTIED, reason=error.reason, tries=tries)
        is_allowed = intent.kind is not OrderKind.VALID or self.may_refuse(intent, error.reason)
        contradictions = () if is_allowed else (f"a valid order was refused with {error.reason}",)
        return OrderResponse(ClientOutcome.REFUSED, reason=error.reason, tries=tries, contradictions=contradictions)

    def pause_seconds(self, intent: Intent, rng: random.Random) -> float:
        """Return how long the customer waits after a failed try."""
        return intent.returns_after_seconds or rng.uniform(0.05, 0.3)

    def has_rival(self, intent: Intent) -> bool:
        """Return whether another order of the same cart contents is placed at about the same time."""
        return intent.rival is not None

    def may_refuse(self, intent: Intent, reason: str) -> bool:
        """Return whether the shop may refuse a valid order for a reason."""
        return reason in _ALLOWED_REFUSALS or (self.has_rival(intent) and reason in _BOUGHT_BY_RIVAL)

    async def _sometimes_repeat(self, intent: Intent, response: OrderResponse, rng: random.Random) -> OrderResponse:
        """Repeat some requests immediately; return the first response, with a contradiction if they differ."""
        if rng.random() >= self._repeat_share:
            return response
        repeated = await self.repeat_order(intent, patience_seconds=1.0)
        if repeated.outcome is ClientOutcome.UNKNOWN or repeated.order == response.order:
            return response
        contradiction = f"an immediate repetition returned {repeated.reason or 'a different order'}"
        return replace(response, contradictions=(contradiction,))
