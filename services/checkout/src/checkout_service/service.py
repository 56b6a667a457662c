"""Servicers for shop.CheckoutService, shop.internal.OrderQuotes and shop.internal.OrderJournal."""

from collections.abc import Iterable, Sequence
from typing import Any

from chassis.errors import InvalidArgument, NotFound
from chassis.rpc.calls import ServicerContext, idempotency_key, metadata_of
from chassis.rpc.wire import item_to_wire, money_to_wire, parse_wire_time, time_to_wire
from chassis.sql.database import Row
from chassis.values import paging
from chassis.values.digests import FINGERPRINT_LENGTH, digest, items_digest, prices_digest
from chassis.values.fields import limit_text, require_between, require_text, signed_reason
from checkout_service.domain import State
from checkout_service.executor import Executor
from checkout_service.existing_orders import Replayed
from checkout_service.journal.sql import Journal
from checkout_service.peers.wire import order_to_wire, request_from_wire
from checkout_service.placing import OrderPlacer
from checkout_service.ports import Entry
from checkout_service.requests import MAX_USER_ID_LENGTH
from checkout_service.settling import decision_of, settle
from shop import checkout_pb2, checkout_pb2_grpc, order_pb2
from shop_internal import orders_pb2 as pb2
from shop_internal import orders_pb2_grpc, record_digests_pb2

REPLAYED = (("order-replayed", "true"),)
_MAX_LISTED = 1000
_DEFAULT_LISTED = 50
_MAX_ID_LENGTH = 64
_MAX_KEY_LENGTH, _MAX_KIND_LENGTH = 255, 32


class OrderNotFound(NotFound):
    """The journal has no order with this id."""


class MismatchNotFound(NotFound):
    """Reconciliation has not recorded this mismatch."""


class CheckoutService(checkout_pb2_grpc.CheckoutServiceServicer, orders_pb2_grpc.OrderQuotesServicer):
    """Serves both the public checkout service and the internal quote service."""

    def __init__(self, placer: OrderPlacer) -> None:
        self._placer = placer

    async def PlaceOrder(
        self, request: checkout_pb2.PlaceOrderRequest, context: ServicerContext
    ) -> checkout_pb2.PlaceOrderResponse:
        metadata = metadata_of(context)
        key, expected_total = idempotency_key(metadata), metadata.get("expected-total")
        outcome = await self._placer.place(request_from_wire(request, key, expected_total))
        if isinstance(outcome, Replayed):
            context.set_trailing_metadata(REPLAYED)
        return checkout_pb2.PlaceOrderResponse(order=order_to_wire(outcome.entry))

    async def QuoteOrder(
        self, request: checkout_pb2.PlaceOrderRequest, _context: ServicerContext
    ) -> order_pb2.OrderResult:
        return order_to_wire(Entry("", "", await self._placer.quote(request_from_wire(request))))


class OrderJournal(orders_pb2_grpc.OrderJournalServicer):
    """The internal service that shows orders to operators, requeues dead letters, and settles orders."""

    def __init__(self, journal: Journal, executor: Executor) -> None:
        self._journal = journal
        self._executor = executor

    async def ListOrders(self, request: pb2.ListOrdersRequest, _context: ServicerContext) -> pb2.ListOrdersResponse:
        limit = require_between(request.limit, "limit", 0, _MAX_LISTED) or _DEFAULT_LISTED
        if request.user_id:
            if request.states or request.stuck:
                raise InvalidArgument.field("user_id", "must not be combined with states or stuck")
            user_id = limit_text(request.user_id, "user_id", max_length=MAX_USER_ID_LENGTH)
            found = await self._journal.list_of_user(user_id, limit)
        else:
            states = [_state_from_wire(state) for state in request.states]
            found = await self._journal.list_orders(states, stuck=request.stuck, limit=limit)
        return pb2.ListOrdersResponse(orders=await self._to_wire(found))

    async def ScanOrders(self, request: pb2.ScanOrdersRequest, _context: ServicerContext) -> pb2.ScanOrdersResponse:
        since = parse_wire_time(request.since, field="since")
        page, token = await paging.read_page(request, since, self._journal.scan, self._journal.read_many)
        closed = [entry for entry in page if entry.state is State.SETTLED or entry.reason.startswith("SETTLED")]
        settlements = await self._journal.settlements(entry.order_id for entry in closed)
        # Don't read the outboxes: a scan may read the whole journal, and reconciliation does not need outboxes.
        orders = [_entry_to_wire(entry, {}, digests=True) for entry in page]
        for order in orders:
            order.settlement = settlements.get(order.order_id, "")
        return pb2.ScanOrdersResponse(
            orders=orders,
            next_page_token=token,
            complete_since=time_to_wire(await self._journal.deletions.complete_since()),
        )

    async def GetOrder(self, request: pb2.GetOrderRequest, _context: ServicerContext) -> pb2.GetOrderResponse:
        found = await self._read(request.order_id)
        outbox = await self._journal.outbox_of([found.order_id])
        order = _entry_to_wire(found, outbox[found.order_id], digests=True)
        history = await self._journal.history(found.order_id)
        return pb2.GetOrderResponse(order=order, history=map(_event_to_wire, history), result=order_to_wire(found))

    async def RequeueNotifications(
        self, request: pb2.RequeueNotificationsRequest, _context: ServicerContext
    ) -> pb2.RequeueNotificationsResponse:
        found = await self._read(request.order_id)
        requeued = await self._journal.requeue(found.order_id, confirm_again=request.confirm_again)
        return pb2.RequeueNotificationsResponse(requeued=requeued)

    async def SettleOrder(self, request: pb2.SettleOrderRequest, _context: ServicerContext) -> pb2.SettleOrderResponse:
        outcome = request.WhichOneof("outcome")
        if outcome is None:
            raise InvalidArgument.field("outcome", "must be one of refunded, shipped and dismissed")
        decision, tracking_id = decision_of(outcome, getattr(request, outcome), request.by)
        found = await self._read(request.order_id)
        settled = await settle(found, decision, tracking_id, self._journal, self._executor)
        return pb2.SettleOrderResponse(order=(await self._to_wire([settled]))[0])

    async def ListMismatches(
        self, _request: pb2.ListMismatchesRequest, _context: ServicerContext
    ) -> pb2.ListMismatchesResponse:
        mismatches = [
            pb2.OpenMismatch(
                order_id=row["order_id"], kind=row["kind"], since=time_to_wire(row["since"]), accepted=row["accepted"]
            )
            for row in await self._journal.mismatches()
        ]
        return pb2.ListMismatchesResponse(mismatches=mismatches)

    async def RecordMismatches(
        self, request: pb2.RecordMismatchesRequest, _context: ServicerContext
    ) -> pb2.RecordMismatchesResponse:
        await self._journal.record_mismatches(_rows_of(request.found), _rows_of(request.agreed))
        return pb2.RecordMismatchesResponse()

    async def AcceptMismatch(
        self, request: pb2.AcceptMismatchRequest, _context: ServicerContext
    ) -> pb2.AcceptMismatchResponse:
        accepted = signed_reason(request.by, request.reason)
        if not await self._journal.accept_mismatch(request.order_id, request.kind, accepted):
            raise MismatchNotFound("reconciliation has found no such mismatch of this order")
        return pb2.AcceptMismatchResponse()

    async def _read(self, order_id: str) -> Entry:
        found = await self._journal.read(require_text(order_id, "order_id", max_length=_MAX_ID_LENGTH))
        if found is None:
            raise OrderNotFound("there is no order with this id")
        return found

    async def _to_wire(self, entries: Sequence[Entry]) -> list[pb2.Order]:
        outbox = await self._journal.outbox_of([entry.order_id for entry in entries])
        return [_entry_to_wire(entry, outbox[entry.order_id]) for entry in entries]


def _state_from_wire(state: "pb2.OrderState.ValueType") -> State:
    require_between(state, "states", 1, len(State))
    return State(pb2.OrderState.Name(state).removeprefix("ORDER_STATE_"))


def _state_to_wire(state: str) -> "pb2.OrderState.ValueType":
    return pb2.OrderState.Value(f"ORDER_STATE_{state}")


def _entry_to_wire(entry: Entry, outbox: dict[str, bool], *, digests: bool = False) -> pb2.Order:
    return pb2.Order(
        order_id=entry.order_id,
        state=_state_to_wire(entry.state),
        user_id=entry.order.user_id,
        total=money_to_wire(entry.order.total),
        attempt=entry.attempt,
        epoch=entry.epoch,
        created_at=time_to_wire(entry.created_at),
        updated_at=time_to_wire(entry.updated_at),
        tracking_id=entry.tracking_id,
        outbox=[kind for kind, dead in outbox.items() if not dead],
        dead_letters=[kind for kind, dead in outbox.items() if dead],
        stuck=entry.stuck,
        failures=entry.failures,
        reason=entry.reason,
        digests=_digests_of(entry) if digests and not entry.unreadable else None,
        unreadable=entry.unreadable or (_contradiction(entry) if digests else ""),
        items=() if digests else map(item_to_wire, entry.order.lines),
    )


def _contradiction(entry: Entry) -> str:
    is_same = entry.recorded_total == entry.order.total
    return "" if is_same else f"the recorded total is {entry.recorded_total}, that of its lines {entry.order.total}"


def _digests_of(entry: Entry) -> record_digests_pb2.RecordDigests:
    """Return digests of the order's content. Until the order is placed, leave out fields that may still change."""
    order, items = entry.order, items_digest(entry.order.lines)
    digests = record_digests_pb2.RecordDigests(address=digest(order.address), items=items)
    if entry.is_placed:
        digests.recipient = digest(order.order_id, order.email)
        digests.confirmation = digest(order.order_id, entry.tracking_id, str(order.total), items, order.address)
        digests.prices = prices_digest(order.lines, order.shipping_cost)
        digests.purchase = digest(order.purchase_id)
        digests.request = digest(entry.fingerprint[:FINGERPRINT_LENGTH])
        digests.transaction = digest(entry.transaction_id or "none")
        digests.tracking = digest(entry.tracking_id or "none")
    return digests


def _rows_of(mismatches: Iterable[pb2.OpenMismatch]) -> list[dict[str, Any]]:
    return [
        {
            "order_id": require_text(mismatch.order_id, "order_id", max_length=_MAX_KEY_LENGTH),
            "kind": require_text(mismatch.kind, "kind", max_length=_MAX_KIND_LENGTH),
            "since": parse_wire_time(mismatch.since, field="since"),
        }
        for mismatch in mismatches
    ]


def _event_to_wire(row: Row) -> pb2.OrderEvent:
    return pb2.OrderEvent(
        at=time_to_wire(row["at"]),
        step=row["step"],
        state=_state_to_wire(row["state"]),
        attempt=row["attempt"],
        epoch=row["epoch"],
        detail=row["detail"],
    )
