"""Which configurations of the model hold, which safeguards they need, and where the guarantees end."""

from dataclasses import replace

from shop_lab.model.tlc import Configuration

ALWAYS = ("OneChargeAScope", "OneShipmentAScope", "ShipmentsAreCharged", "PlacedOrdersAreShipped")
ONE_CART = ("OneChargeACart", "OneShipmentACart")
RELEASED = ("ReleasedOrdersAreNotCharged", "PlacedOrdersHaveTheirContent")
REFUSED = ("RefusedOrdersAreNotCharged",)
NOTIFIED = ("ShippedOrdersHaveItems", "DoneOrdersAreNotified")
CART = ("ShipmentsAreCharged", "ItemsAreBoughtOnce", "DoneOrdersAreNotified")
LOST_CART = ("ShipmentsAreCharged", "NoItemIsShippedTwice", "NoItemVanishes")

ONE_REQUEST = Configuration(ALWAYS + ONE_CART + RELEASED, settles=True)
MALFORMED = replace(ONE_REQUEST, requests=("ann", "ben"), malformed=("ann",))
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
OUTBOX = Configuration(
    ALWAYS + NOTIFIED + LOST_CART,
    tasks=1,
    max_attempts=1,
    failovers=True,
    kinds=("email", "empty_cart"),
    purchases=True,
)
CART_OF_KEYS = Configuration(CART, requests=("ann", "ben"), one_scope=False, tasks=1, kinds=("empty_cart",), items=2)
CART_OF_ETAGS = replace(CART_OF_KEYS, one_scope=True, has_key=False, max_attempts=1)
OLD_KEYS = replace(CART_OF_KEYS, max_attempts=1, retention=True, purchases=True)
TWO_LOST_KEYS = replace(TWO_KEYS, invariants=ALWAYS + ONE_CART, failovers=True, tasks=1, settles=False, purchases=True)
LOST_KEYS = replace(CART_OF_KEYS, invariants=LOST_CART, max_attempts=1, failovers=True, items=1, purchases=True)
LOST_ETAGS = replace(LOST_KEYS, one_scope=True, has_key=False)
LOST_KEY = replace(LOST_KEYS, requests=("ann",), max_attempts=2, items=2)

HOLD = {
    "one request": ONE_REQUEST,
    "a malformed card": MALFORMED,
    "two requests, one cart, no key": TWO_REQUESTS,
    "two keys, one cart": TWO_KEYS,
    "a shipping without a manifest": FOREIGN_SHIPPING,
    "outbox and cart, failovers": OUTBOX,
    "impatient customers, two keys": CART_OF_KEYS,
    "impatient customers, no key": CART_OF_ETAGS,
    "impatient customers, old keys": OLD_KEYS,
    "two keys, one item, failovers": LOST_KEYS,
    "no key, one item, failovers": LOST_ETAGS,
    "one key, two items, failovers": LOST_KEY,
    "two keys, one cart, failovers": TWO_LOST_KEYS,
    "failovers": replace(FAILOVERS, invariants=ALWAYS + ONE_CART + REFUSED, settles=True, max_attempts=3),
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
    "shipment before removal": (replace(CART_OF_KEYS, without="shipment before removal"), "ItemsAreBoughtOnce"),
    "constraint, impatient customers": (replace(CART_OF_KEYS, without="cart constraint"), "ItemsAreBoughtOnce"),
    **{
        name: (replace(CART_OF_KEYS, without=name), "ItemsAreBoughtOnce")
        for name in ("generation of the removal", "reading at reopening")
    },
    "retention's guards": (replace(OLD_KEYS, max_attempts=2, without="retention's guards"), "ItemsAreBoughtOnce"),
    "proof of shipments": (replace(OLD_KEYS, without="proof of shipments"), "ShipmentsAreCharged"),
    "one charge a purchase": (replace(LOST_KEYS, purchases=False), "NoItemIsShippedTwice"),
    "a key's purchase": (replace(LOST_KEY, without="a key's purchase"), "NoItemVanishes"),
    "a key's purchase, old keys": (replace(OLD_KEYS, without="a key's purchase"), "ItemsAreBoughtOnce"),
}

# Guarantees that a journal that loses commits does not give: a change that gives one of them belongs into HOLD.
LIMITS = {
    "shipped, lost, left in the cart": (replace(LOST_KEYS, invariants=CART[1:2]), "ItemsAreBoughtOnce"),
}
