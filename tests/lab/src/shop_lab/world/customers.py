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
from shop_lab.world.evidence import BOUGHT_BY_ANOTHER, CART_EMPTY, ClientOutcome, OrderResponse
from shop_lab.world.histories import Times
from shop_lab.world.progress_gate import ProgressGate
from shop_lab.world.refusing_peers import CARD_REFUSED, NO_DELIVERY

HANGUP_SHARE = 0.1
REPEAT_SHARE = 0.2
_HANGUP_SECONDS = (0.005, 0.4)
_LATE_SECONDS = (0.05, 1.0)
_PERHAPS_PLACED = frozenset({ClientOutcome.PLACED, ClientOutcome.CART_EMPTIED, ClientOutcome.UNKNOWN})
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
    responses: dict[int, OrderResponse] = field(default_factory=dict)
    cart_known: bool = True


class CustomerSimulator(CustomerCalls):
    """Simulates customers of one cart service and any number of checkouts.

    Args:
        cart: the cart service.
        checkouts: called in turn, starting at the order's number.
        gate: delays the start of orders.
        timeout_seconds: of each try to order.
        hangup_share: of the tries that have a deadline of at most 0.4 s, as impatient callers do.
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
        """Place the orders of all devices, which start once the first one has filled the cart."""
        result = CustomerResult(customer)
        await self._gate.wait_until_open(max(intent.number for intent in customer.intents))
        await asyncio.sleep(customer.intents[0].after_seconds)
        failure = await self._fill_cart(customer.intents[0], result)
        async with asyncio.TaskGroup() as devices:
            for number, device in enumerate(customer.devices):
                devices.create_task(self._order_in_turn(device, result, failure), name=f"device {number}")
        return result

    async def _order_in_turn(
        self, intents: Sequence[Intent], result: CustomerResult, failure: OrderResponse | None
    ) -> None:
        """Place the orders of a device, each as soon as the one before it is answered."""
        for intent in intents:
            try:
                if intent is not result.customer.intents[0] and failure is None:
                    await asyncio.sleep(intent.after_seconds)
                    failure = await self._fill_cart(intent, result)
                result.responses[intent.number] = failure or await self._order_and_add(intent, result)
            finally:
                await self._gate.finish()

    async def _order_and_add(self, intent: Intent, result: CustomerResult) -> OrderResponse:
        """Place an order, and meanwhile or soon after add what it does not order."""
        rng = random.Random(intent.seed)  # noqa: S311 - a schedule, not a secret
        async with asyncio.TaskGroup() as tasks:
            if intent.late_line is not None:
                delay_seconds = rng.uniform(0, rng.choice(_LATE_SECONDS))
                tasks.create_task(self._add_late(intent, intent.late_line, delay_seconds, result))
            ordering = tasks.create_task(self._order(intent, rng))
        return ordering.result()

    @property
    def has_failed(self) -> bool:
        """Whether more customers than allowed have waited in vain."""
        return self._max_unanswered is not None and self._unanswered > self._max_unanswered

    async def _fill_cart(self, intent: Intent, result: CustomerResult) -> OrderResponse | None:
        """Add the order's lines to the cart; if the order cannot be placed, return its result."""
        if self.has_failed:
            return OrderResponse(ClientOutcome.SKIPPED)
        for index, line in enumerate(intent.lines):
            if not await self._add(intent.user_id, line, f"{intent.number}-{index}", result):
                return OrderResponse(ClientOutcome.NOT_SUBMITTED, reason="the cart could not be filled")
        return None

    async def _add_late(self, intent: Intent, line: Line, delay_seconds: float, result: CustomerResult) -> None:
        await asyncio.sleep(delay_seconds)
        await self._add(intent.user_id, line, f"{intent.number}-late", result)

    async def _add(self, user_id: str, line: Line, key: str, result: CustomerResult) -> bool:
        if await self.add_line(user_id, line, key):
            result.added[line.product_id] += line.quantity
            return True
        result.cart_known = False
        return False

    async def _order(self, intent: Intent, rng: random.Random) -> OrderResponse:
        """Place the order and record what it bought."""
        started = self._now()
        response = await self._order_with_retries(intent, rng)
        bought = response.order and {line.item.product_id: line.item.quantity for line in response.order.items}
        if response.outcome in _PERHAPS_PLACED or response.reason in BOUGHT_BY_ANOTHER | {"ORDER_NEEDS_REVIEW"}:
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
            timeout_seconds = rng.uniform(*_HANGUP_SECONDS) if rng.random() < self._hangup_share else None
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
        if error.reason == CART_EMPTY and tries > 1 and intent.key is None and not intent.contested:
            return OrderResponse(ClientOutcome.CART_EMPTIED, reason=error.reason, tries=tries)
        is_allowed = intent.kind is not OrderKind.VALID or self.may_refuse(intent, error.reason)
        contradictions = () if is_allowed else (f"a valid order was refused with {error.reason}",)
        return OrderResponse(ClientOutcome.REFUSED, reason=error.reason, tries=tries, contradictions=contradictions)

    def pause_seconds(self, intent: Intent, rng: random.Random) -> float:
        """Return how long the customer waits after a failed try."""
        return intent.returns_after_seconds or rng.uniform(0.05, 0.3)

    def may_refuse(self, intent: Intent, reason: str) -> bool:
        """Return whether the shop may refuse a valid order for a reason."""
        return reason in _ALLOWED_REFUSALS or (intent.contested and reason in BOUGHT_BY_ANOTHER)

    async def _sometimes_repeat(self, intent: Intent, response: OrderResponse, rng: random.Random) -> OrderResponse:
        """Repeat some requests immediately; return the first response, with a contradiction if they differ."""
        if rng.random() >= self._repeat_share:
            return response
        repeated = await self.repeat_order(intent, patience_seconds=1.0)
        if repeated.outcome is ClientOutcome.UNKNOWN or repeated.order == response.order:
            return response
        contradiction = f"an immediate repetition returned {repeated.reason or 'a different order'}"
        return replace(response, contradictions=(contradiction,))
