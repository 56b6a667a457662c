"""The calls that customers make, recorded with their times and results."""

import asyncio
import math
from collections.abc import Sequence

from chassis import errors
from shop.cart_pb2 import AddItemRequest, CartItem, GetCartRequest
from shop.cart_pb2_grpc import CartServiceStub
from shop.checkout_pb2 import PlaceOrderRequest
from shop.checkout_pb2_grpc import CheckoutServiceStub
from shop.order_pb2 import OrderResult
from shop_cli.clients import is_replayed
from shop_cli.sample_order import card_info, sample_order
from shop_lab.world.customer_plan import Intent, Line
from shop_lab.world.evidence import ClientOutcome, OrderResponse
from shop_lab.world.histories import Histories, Times
from shop_lab.world.ledgers import CARD_MONTH

PATIENCE_SECONDS = 60.0
_TRY_SECONDS = 5.0
DEFINITE_ERRORS = (errors.InvalidArgument, errors.FailedPrecondition, errors.NotFound, errors.OutOfRange)


class CustomerCalls:
    """Calls one cart service and any number of checkouts.

    Args:
        cart: the cart service.
        checkouts: called in turn, starting at the order's number.

    Attributes:
        replays: the number of responses that were marked as replayed.
        histories: all calls that had a result, and those that may have had an effect.
    """

    def __init__(self, cart: CartServiceStub, checkouts: Sequence[CheckoutServiceStub]) -> None:
        self.replays = 0
        self.histories = Histories()
        self._cart = cart
        self._checkouts = checkouts
        # Not time.monotonic: in a simulation the loop's time is virtual.
        self._now = asyncio.get_running_loop().time

    async def place_order(self, intent: Intent, tries: int = 0, timeout_seconds: float | None = None) -> OrderResult:
        """Place the order with a single call; the number of earlier tries selects the checkout. Raise DomainError."""
        metadata = (("idempotency-key", intent.key),) if intent.key else ()
        checkout = self._checkouts[(intent.number + tries) % len(self._checkouts)]
        call = checkout.PlaceOrder(intent_to_wire(intent), timeout=timeout_seconds or _TRY_SECONDS, metadata=metadata)
        started = self._now()
        try:
            response = await call
        except DEFINITE_ERRORS as error:
            self._record_response(intent, error.reason.encode(), started)
            raise
        self._record_response(intent, response.order.SerializeToString(deterministic=True), started)
        self.replays += await is_replayed(call)
        return response.order

    def _record_response(self, intent: Intent, response: bytes, started: float) -> None:
        if intent.key:
            self.histories.record_response(intent.key, response, Times(started, self._now()))

    async def repeat_order(self, intent: Intent, patience_seconds: float) -> OrderResponse:
        """Place an order again that already has a definite response; return the response to the repeated request."""
        deadline = self._now() + patience_seconds
        tries = 1
        while True:
            try:
                return OrderResponse(ClientOutcome.PLACED, await self.place_order(intent, tries))
            except DEFINITE_ERRORS as error:
                return OrderResponse(ClientOutcome.REFUSED, reason=error.reason)
            except errors.DomainError as error:
                if self._now() > deadline:
                    return OrderResponse(ClientOutcome.UNKNOWN, reason=error.reason)
                await asyncio.sleep(0.1)
                tries += 1

    async def cart_contents(self, user_id: str) -> dict[str, int] | None:
        """Return the quantities in a cart by product id, None if it cannot be read."""
        started = self._now()
        try:
            cart = await self._cart.GetCart(GetCartRequest(user_id=user_id))
        except errors.DomainError:
            return None
        contents = {item.product_id: item.quantity for item in cart.items}
        self.histories.record_read(user_id, contents, Times(started, self._now()))
        return contents

    async def add_line(self, user_id: str, line: Line, key: str) -> bool:
        """Add a line to a cart under an idempotency key, with retries. Return False on timeout."""
        request = AddItemRequest(user_id=user_id, item=CartItem(product_id=line.product_id, quantity=line.quantity))
        started = self._now()
        times = Times(started)
        while times.returned == math.inf and self._now() < started + PATIENCE_SECONDS:
            try:
                await self._cart.AddItem(request, timeout=2, metadata=(("idempotency-key", key),))
            except errors.DomainError:
                await asyncio.sleep(0.1)
            else:
                times = Times(started, self._now())
        self.histories.record_addition(user_id, key, line.product_id, line.quantity, times=times)
        return times.returned < math.inf


def intent_to_wire(intent: Intent) -> PlaceOrderRequest:
    """Return the request that places the order."""
    request = sample_order(intent.user_id, intent.email)
    request.user_currency = intent.currency
    request.address.street_address = intent.street
    request.credit_card.CopyFrom(card_info(intent.card_number, expires=f"{intent.card_year}-{CARD_MONTH}"))
    return request
