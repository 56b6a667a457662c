"""Simulate customers: fill a cart, place orders, retry, and record the responses."""

import asyncio
import math
import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from chassis import errors
from shop_lab.world.customer_calls import DEFINITE_ERRORS, PATIENCE_SECONDS, CustomerCalls
from shop_lab.world.customer_plan import Customer, Intent, Line, OrderKind
from shop_lab.world.evidence import BOUGHT_BY_ANOTHER, CART_EMPTY, INDEFINITE, ClientOutcome, OrderResponse
from shop_lab.world.histories import Times
from shop_lab.world.refusing_peers import CARD_REFUSED, NO_DELIVERY

_HANGUP_SHARE = 0.1
_REPEAT_SHARE = 0.2
_HANGUP_SECONDS = (0.005, 0.4)
_PAUSE_SECONDS = (0.05, 0.3)
_LATE_SECONDS = (0.05, 1.0)
_PERHAPS_PLACED = frozenset({ClientOutcome.PLACED, ClientOutcome.CART_EMPTIED, ClientOutcome.UNKNOWN})
_ALLOWED_REFUSALS = frozenset(
    {CARD_REFUSED, NO_DELIVERY, "CHARGE_VOIDED", "ORDER_NEEDS_REFUND", "ORDER_NEEDS_REVIEW", "ORDER_SETTLED"}
)
"""Reasons for which even a valid order is refused: a peer refuses it, as a fault, or operators must settle it or have.

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

    @property
    def waited_in_vain(self) -> bool:
        """Whether an order that its customer did not give up has no definite response."""
        kept = [self.responses[intent.number] for intent in self.customer.intents if intent.max_tries is None]
        return any(response.outcome in INDEFINITE for response in kept)


class CustomerSimulator(CustomerCalls):
    """Simulates customers of one cart service and any number of checkouts."""

    async def run(self, customer: Customer) -> CustomerResult:
        """Place the orders of all devices, which start once the first one has filled the cart."""
        result = CustomerResult(customer)
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
            if intent is not result.customer.intents[0] and failure is None:
                await asyncio.sleep(intent.after_seconds)
                failure = await self._fill_cart(intent, result)
            result.responses[intent.number] = failure or await self._order_and_add(intent, result)

    async def _order_and_add(self, intent: Intent, result: CustomerResult) -> OrderResponse:
        """Place an order, and meanwhile or soon after add what it does not order."""
        rng = random.Random(intent.seed)  # noqa: S311 - a schedule, not a secret
        async with asyncio.TaskGroup() as tasks:
            if intent.late_line is not None:
                delay_seconds = rng.uniform(0, rng.choice(_LATE_SECONDS))
                tasks.create_task(self._add_late(intent, intent.late_line, delay_seconds, result))
            ordering = tasks.create_task(self._order(intent, rng))
        return ordering.result()

    async def _fill_cart(self, intent: Intent, result: CustomerResult) -> OrderResponse | None:
        """Add the order's lines to the cart; if the order cannot be placed, return its result."""
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
        while self._now() < deadline and (intent.max_tries is None or tries < intent.max_tries):
            hangs_up = intent.hasty and rng.random() < _HANGUP_SHARE
            try:
                order = await self.place_order(intent, tries, rng.uniform(*_HANGUP_SECONDS) if hangs_up else None)
            except DEFINITE_ERRORS as error:
                return self._refusal(intent, error, tries + 1)
            except errors.DomainError as error:
                reason = error.reason
                await asyncio.sleep(intent.returns_after_seconds or rng.uniform(*_PAUSE_SECONDS))
            else:
                if intent.hasty and intent.key and rng.random() < _REPEAT_SHARE:
                    await self.repeat_order(intent, patience_seconds=1.0)
                return OrderResponse(ClientOutcome.PLACED, order, tries=tries + 1)
            tries += 1
        return OrderResponse(ClientOutcome.UNKNOWN, reason=reason, tries=tries)

    def _refusal(self, intent: Intent, error: errors.DomainError, tries: int) -> OrderResponse:
        if error.reason == CART_EMPTY and tries > 1 and intent.key is None and not intent.contested:
            return OrderResponse(ClientOutcome.CART_EMPTIED, reason=error.reason, tries=tries)
        is_allowed = intent.kind is not OrderKind.VALID or self.may_refuse(intent, error.reason)
        contradictions = () if is_allowed else (f"a valid order was refused with {error.reason}",)
        return OrderResponse(ClientOutcome.REFUSED, reason=error.reason, tries=tries, contradictions=contradictions)

    def may_refuse(self, intent: Intent, reason: str) -> bool:
        """Return whether the shop may refuse a valid order for a reason."""
        return reason in _ALLOWED_REFUSALS or (intent.contested and reason in BOUGHT_BY_ANOTHER)
