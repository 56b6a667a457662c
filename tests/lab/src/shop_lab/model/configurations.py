"""Which configurations of the model hold, which safeguards they need, and where the guarantees end."""

from dataclasses import replace

from shop_lab.model.runs import MAX_ATTEMPTS, PRICES, REQUESTS, WRONG_RUNS
from shop_lab.model.tlc import NO_PROGRESS, Configuration

ALWAYS = ("OneChargeAScope", "OneShipmentAScope", "ShipmentsAreCharged", "PlacedOrdersAreShipped")
ONE_CART = ("OneChargeACart", "OneShipmentACart")
RELEASED = ("ReleasedOrdersAreNotCharged", "PlacedOrdersHaveTheirContent")
REFUSED = ("RefusedOrdersAreNotCharged",)
NOTIFIED = ("ShippedOrdersHaveItems", "DoneOrdersAreNotified", "RemovedItemsAreShipped", "AddedItemsRemain")

ONE_REQUEST = Configuration(ALWAYS + ONE_CART + RELEASED, settles=True)
MALFORMED = replace(ONE_REQUEST, malformed=("ann",))
TWO_REQUESTS = replace(ONE_REQUEST, requests=("ann", "ben"), has_key=False)
TWO_KEYS = replace(ONE_REQUEST, requests=("ann", "ben"), one_scope=False)
FOREIGN_SHIPPING = replace(ONE_REQUEST, has_manifest=False)
FAILOVERS = Configuration(ALWAYS + ONE_CART, failovers=True)
FAILOVERS_ONE_WORKER = Configuration(
    ALWAYS + ONE_CART + REFUSED, prices=(1, 2), tasks=1, max_attempts=3, failovers=True, settles=True
)
FAILOVERS_TWO_REQUESTS = Configuration(
    (*ALWAYS, *ONE_CART, "PlacedOrdersHaveTheirContent"),
    requests=("ann", "ben"),
    has_key=False,
    tasks=1,
    max_attempts=3,
    failovers=True,
    settles=True,
)
OUTBOX = Configuration(ALWAYS + NOTIFIED, tasks=1, max_attempts=1, failovers=True, outbox=True)

RECORDED = Configuration(
    (), REQUESTS, prices=PRICES, has_key=False, max_attempts=MAX_ATTEMPTS, failovers=True, runs="recorded"
)

CONFORMANCE = {
    "recorded runs": (RECORDED, ""),
    # The controls: these runs are not those of a code without a fence, and TLC notices a wrong one.
    "recorded runs without fence": (replace(RECORDED, without="fence"), NO_PROGRESS),
    **{name: (replace(RECORDED, runs=name), NO_PROGRESS) for name in WRONG_RUNS},
}

HOLD = {
    "one request": ONE_REQUEST,
    "a malformed card": MALFORMED,
    "two requests, one cart, no key": TWO_REQUESTS,
    "two keys, one cart": TWO_KEYS,
    "a shipping without a manifest": FOREIGN_SHIPPING,
    "outbox and cart, failovers": OUTBOX,
    "failovers": FAILOVERS,
    "a refusal during failovers": replace(FAILOVERS, invariants=REFUSED, max_attempts=3),
    "settling after failovers": replace(FAILOVERS, settles=True, max_attempts=3),
    "failovers, one worker at a time": FAILOVERS_ONE_WORKER,
    "failovers, one worker, two requests": FAILOVERS_TWO_REQUESTS,
}

SAFEGUARDS = {
    "payment's key": (replace(ONE_REQUEST, without="payment's key"), "OneChargeAScope"),
    "fence": (replace(ONE_REQUEST, without="fence"), "ReleasedOrdersAreNotCharged"),
    "claim": (replace(ONE_REQUEST, without="claim"), "ReleasedOrdersAreNotCharged"),
    "shipping's fence": (replace(ONE_REQUEST, without="shipping's fence"), "ShipmentsAreCharged"),
    "cart constraint": (replace(TWO_KEYS, without="cart constraint"), "OneChargeACart"),
    "review": (replace(FOREIGN_SHIPPING, without="review"), "ShipmentsAreCharged"),
    "derived id": (replace(FAILOVERS, without="derived id"), "OneChargeAScope"),
    "report of fences": (
        replace(FAILOVERS_ONE_WORKER, without="report of fences"),
        "RefusedOrdersAreNotCharged",
    ),
    "fingerprint of charges": (
        replace(FAILOVERS_TWO_REQUESTS, settles=False, without="fingerprint of charges"),
        "PlacedOrdersHaveTheirContent",
    ),
    "settle's lock": (replace(OUTBOX, failovers=False, without="settle's lock"), "ShippedOrdersHaveItems"),
    "shipment before removal": (
        replace(OUTBOX, failovers=False, without="shipment before removal"),
        "RemovedItemsAreShipped",
    ),
    "one removal an order": (
        replace(OUTBOX, failovers=False, without="one removal an order"),
        "AddedItemsRemain",
    ),
}

# Guarantees that a journal that loses commits does not give: a change that gives one of them belongs into HOLD.
LIMITS = {
    "two keys, one cart, failovers": (replace(TWO_KEYS, failovers=True, tasks=1, settles=False), "OneChargeACart"),
}
