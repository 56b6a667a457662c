"""Simulated customers: they fill carts, order, retry, hang up, give up, and compare responses."""

import asyncio
import random
from collections import Counter
from dataclasses import dataclass, field, replace

from chassis import errors
from shop.cart_pb2 import AddItemRequest, CartItem, GetCartRequest
from shop.cart_pb2_grpc import CartServiceStub
from shop.checkout_pb2_grpc import CheckoutServiceStub
from shop.order_pb2 import OrderResult
from shop_lab.simulation.network import Network, on_behalf_of
from shop_lab.simulation.plan import CHECKOUTS, Shopper, Visit
from shop_lab.world.customer_calls import intent_to_wire
from shop_lab.world.customer_plan import Intent, Line, OrderKind
from shop_lab.world.evidence import ClientOutcome, OrderResponse

PATIENCE_SECONDS = 60.0
_TIMEOUT_SECONDS = 5.0
_NEXT_CART_SECONDS = 10.0
_HANGUP_SHARE = 0.1
_REPEAT_SHARE = 0.2
_SOON_SHARE = 0.8
_DEFINITE = (errors.InvalidArgument, errors.FailedPrecondition, errors.NotFound, errors.OutOfRange)


@dataclass
class ShopperResult:
    """What a customer added to the cart, and the responses by order number.

    Attributes:
        cart_known: False if it is unknown whether an addition took effect.
    """

    shopper: Shopper
    added: Counter[str] = field(default_factory=Counter)
    added_late: Counter[str] = field(default_factory=Counter)
    responses: dict[int, OrderResponse] = field(default_factory=dict)
    cart_known: bool = True


class CustomerClient:
    """A customer's calls.

    Args:
        refusals: whether peers refuse valid orders in this run.
    """

    def __init__(self, network: Network, shopper: Shopper, *, refusals: bool) -> None:
        self._carts = CartServiceStub(network.channel("cart", 2.0))
        self._checkouts = [CheckoutServiceStub(network.channel(name, _TIMEOUT_SECONDS)) for name in CHECKOUTS]
        self._shopper = shopper
        self._refusals = refusals
        self._now = asyncio.get_running_loop().time

    async def run(self) -> ShopperResult:
        """Make all visits, one after the other."""
        on_behalf_of.set(self._shopper.user_id)
        result = ShopperResult(self._shopper)
        for visit in self._shopper.visits:
            await asyncio.sleep(max(visit.at - self._now(), 0))
            await self._visit(visit, result)
        return result

    async def repeat(self, intent: Intent) -> OrderResponse:
        """Place an order again that already has a definite response."""
        deadline = self._now() + PATIENCE_SECONDS
        tries = 1
        while self._now() < deadline:
            try:
                return OrderResponse(ClientOutcome.PLACED, await self._place(intent, tries, _TIMEOUT_SECONDS))
            except _DEFINITE as error:
                return OrderResponse(ClientOutcome.REFUSED, reason=error.reason)
            except errors.DomainError:
                await asyncio.sleep(0.2)
                tries += 1
        return OrderResponse(ClientOutcome.UNKNOWN)

    async def cart_contents(self) -> dict[str, int] | None:
        """Return the quantities in the cart, None if it cannot be read."""
        try:
            cart = await self._carts.GetCart(GetCartRequest(user_id=self._shopper.user_id))
        except errors.DomainError:
            return None
        return {item.product_id: item.quantity for item in cart.items}

    async def _visit(self, visit: Visit, result: ShopperResult) -> None:
        not_submitted = OrderResponse(ClientOutcome.NOT_SUBMITTED)
        result.responses.update({intent.number: not_submitted for intent in visit.intents})
        if visit is not self._shopper.visits[0] and not await self._is_cart_emptied():
            return
        for line in visit.intents[0].lines:
            if not await self._add(line, f"{visit.intents[0].number}-{line.product_id}", result.added):
                result.cart_known = False
                return
        orders = [
            asyncio.create_task(
                self._order(intent, delay, alone=len(visit.intents) == 1), name=f"order {intent.number}"
            )
            for intent, delay in zip(visit.intents, visit.delays, strict=True)
        ]
        for intent in visit.intents:
            if intent.late_line is not None:
                await asyncio.sleep(random.Random(intent.seed).uniform(0, 0.05))  # noqa: S311
                result.cart_known &= await self._add(intent.late_line, f"{intent.number}-late", result.added_late)
        for intent, order in zip(visit.intents, orders, strict=True):
            result.responses[intent.number] = await order

    async def _is_cart_emptied(self) -> bool:
        deadline = self._now() + _NEXT_CART_SECONDS
        while await self.cart_contents() != {}:
            if self._now() > deadline:
                return False
            await asyncio.sleep(0.2)
        return True

    async def _add(self, line: Line, key: str, added: Counter[str]) -> bool:
        item = CartItem(product_id=line.product_id, quantity=line.quantity)
        request = AddItemRequest(user_id=self._shopper.user_id, item=item)
        deadline = self._now() + PATIENCE_SECONDS
        while self._now() < deadline:
            try:
                await self._carts.AddItem(request, metadata=(("idempotency-key", key),))
            except errors.DomainError:
                await asyncio.sleep(0.1)
            else:
                added[line.product_id] += line.quantity
                return True
        return False

    async def _place(self, intent: Intent, tries: int, timeout_seconds: float) -> OrderResult:
        metadata = (("idempotency-key", intent.key),) if intent.key else ()
        checkout = self._checkouts[(intent.number + tries) % len(self._checkouts)]
        response = await checkout.PlaceOrder(intent_to_wire(intent), timeout=timeout_seconds, metadata=metadata)
        return response.order

    async def _order(self, intent: Intent, delay: float, *, alone: bool) -> OrderResponse:
        await asyncio.sleep(delay)
        rng = random.Random(intent.seed)  # noqa: S311 - a schedule, not a secret
        deadline = self._now() + PATIENCE_SECONDS
        reason, tries = "", 0
        while self._now() < deadline and (intent.max_tries is None or tries < intent.max_tries):
            seconds = rng.uniform(0.005, 0.2) if rng.random() < _HANGUP_SHARE else _TIMEOUT_SECONDS
            try:
                order = await self._place(intent, tries, seconds)
            except _DEFINITE as error:
                return self._refusal(intent, error, tries + 1, alone=alone)
            except errors.DomainError as error:
                reason = error.reason
                await asyncio.sleep(rng.uniform(0.05, 0.5) if rng.random() < _SOON_SHARE else rng.uniform(0, 5))
            else:
                response = OrderResponse(ClientOutcome.PLACED, order, tries=tries + 1)
                return await self._sometimes_repeat(intent, response, rng)
            tries += 1
        return OrderResponse(ClientOutcome.UNKNOWN, reason=reason, tries=tries)

    async def _sometimes_repeat(self, intent: Intent, response: OrderResponse, rng: random.Random) -> OrderResponse:
        if intent.key is None or rng.random() > _REPEAT_SHARE:
            return response
        repeated = await self.repeat(intent)
        if repeated.outcome is ClientOutcome.UNKNOWN or repeated.order == response.order:
            return response
        return replace(response, contradictions=(f"a repetition returned {repeated.reason or 'a different order'}",))

    def _refusal(self, intent: Intent, error: errors.DomainError, tries: int, *, alone: bool) -> OrderResponse:
        if alone and error.reason == "CART_EMPTY" and tries > 1 and intent.key is None:
            return OrderResponse(ClientOutcome.CART_EMPTIED, reason=error.reason, tries=tries)
        expected = not alone or self._refusals or intent.kind is not OrderKind.VALID
        contradictions = () if expected else (f"a valid order was refused with {error.reason}",)
        return OrderResponse(ClientOutcome.REFUSED, reason=error.reason, tries=tries, contradictions=contradictions)
