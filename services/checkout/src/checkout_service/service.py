"""shop.CheckoutService and shop.internal.OrderJournal: from the wire to orders and back."""

from google.protobuf.timestamp_pb2 import Timestamp

from chassis.calls import metadata_value
from chassis.errors import NotFound
from chassis.fields import parse_idempotency_key, require_between, require_text
from chassis.serving import ServicerContext
from chassis.wire import money_to_wire
from checkout_service.codec import request_from_wire
from checkout_service.domain import State
from checkout_service.journal import Entry, Event, Journal
from checkout_service.placing import Placing
from shop import checkout_pb2, checkout_pb2_grpc
from shop_internal import orders_pb2, orders_pb2_grpc

REPLAYED = (("idempotent-replayed", "true"),)
_MAX_LISTED = 1000
_DEFAULT_LISTED = 50
_MAX_ID_LENGTH = 64


class OrderNotFound(NotFound):
    """The journal has no such order."""


class CheckoutService(checkout_pb2_grpc.CheckoutServiceServicer):
    """Places orders."""

    def __init__(self, placing: Placing) -> None:
        self._placing = placing

    async def PlaceOrder(
        self, request: checkout_pb2.PlaceOrderRequest, context: ServicerContext
    ) -> checkout_pb2.PlaceOrderResponse:
        """Place an order, once for each idempotency-key; a repetition tells so in trailing metadata."""
        key = metadata_value(context, "idempotency-key")
        if key is not None:
            parse_idempotency_key(key)
        answer = await self._placing.place(request_from_wire(request), key)
        if answer.replayed:
            context.set_trailing_metadata(REPLAYED)
        return checkout_pb2.PlaceOrderResponse.FromString(answer.response)


class OrderJournal(orders_pb2_grpc.OrderJournalServicer):
    """Tells operators of orders."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal

    async def ListOrders(
        self, request: orders_pb2.ListOrdersRequest, _context: ServicerContext
    ) -> orders_pb2.ListOrdersResponse:
        """List orders, newest first; stuck ones oldest first."""
        limit = require_between(request.limit, "limit", 0, _MAX_LISTED) or _DEFAULT_LISTED
        states = [_state_from_wire(state) for state in request.states]
        found = await self._journal.list_orders(states, stuck=request.stuck, limit=limit)
        left = await self._journal.outbox_of([entry.order_id for entry in found])
        return orders_pb2.ListOrdersResponse(orders=[_to_wire(entry, left[entry.order_id]) for entry in found])

    async def GetOrder(
        self, request: orders_pb2.GetOrderRequest, _context: ServicerContext
    ) -> orders_pb2.GetOrderResponse:
        """Tell an order and its history, oldest first."""
        order_id = require_text(request.order_id, "order_id", max_length=_MAX_ID_LENGTH)
        found = await self._journal.read(order_id)
        if found is None:
            raise OrderNotFound("there is no such order")
        left = await self._journal.outbox_of([order_id])
        history = await self._journal.history(order_id)
        return orders_pb2.GetOrderResponse(order=_to_wire(found, left[order_id]), history=map(_event_to_wire, history))


def _state_from_wire(state: "orders_pb2.OrderState.ValueType") -> State:
    require_between(state, "states", 1, len(State))
    return State(orders_pb2.OrderState.Name(state).removeprefix("ORDER_STATE_"))


def _state_to_wire(state: State) -> "orders_pb2.OrderState.ValueType":
    return orders_pb2.OrderState.Value(f"ORDER_STATE_{state.value}")


def _to_wire(entry: Entry, outbox: list[str]) -> orders_pb2.Order:
    return orders_pb2.Order(
        order_id=entry.order_id,
        state=_state_to_wire(entry.state),
        user_id=entry.user_id,
        total=money_to_wire(entry.total),
        attempt=entry.attempt,
        epoch=entry.epoch,
        created_at=_time(entry.created_at),
        updated_at=_time(entry.updated_at),
        tracking_id=entry.tracking_id,
        outbox=outbox,
        stuck=entry.stuck,
        failures=entry.failures,
        reason=entry.reason,
    )


def _event_to_wire(event: Event) -> orders_pb2.OrderEvent:
    return orders_pb2.OrderEvent(
        at=_time(event.at),
        step=event.step,
        state=_state_to_wire(event.state),
        attempt=event.attempt,
        epoch=event.epoch,
        detail=event.detail,
    )


def _time(seconds: float) -> Timestamp:
    at = Timestamp()
    at.FromNanoseconds(int(seconds * 1e9))
    return at
