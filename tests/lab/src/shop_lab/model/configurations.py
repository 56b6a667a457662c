"""Which configurations of the model hold, which safeguards they need, and where the guarantees end."""

from shop_lab.model.tlc import Configuration

ALWAYS = ("OneChargeAScope", "OneShipmentAScope", "ShipmentsAreCharged", "PlacedOrdersAreShipped")
ONE_CART = ("OneChargeACart", "OneShipmentACart")
RELEASED = ("ReleasedOrdersAreNotCharged", "PlacedOrdersHaveTheirContent")
REFUSED = ("RefusedOrdersAreNotCharged",)
NOTIFIED = ("ShippedOrdersHaveItems", "DoneOrdersAreNotified")
CART = ("ShipmentsAreCharged", "ItemsAreBoughtOnce", "DoneOrdersAreNotified")
LOST_CART = ("ShipmentsAreCharged", "NoItemIsShippedTwice", "NoItemVanishes")

BOTH, ONE_WORKER = "{ann, ben}", "{w1}"

ONE_REQUEST = Configuration(*ALWAYS, *ONE_CART, *RELEASED, Quiet="TRUE")
MALFORMED = ONE_REQUEST.but(Requests=BOTH, Malformed="{ann}")
TWO_REQUESTS = ONE_REQUEST.but(Requests=BOTH, HasKey="FALSE")
TWO_KEYS = ONE_REQUEST.but(Requests=BOTH, OneScope="FALSE")
FOREIGN_SHIPPING = ONE_REQUEST.but(HasManifest="FALSE")
FAILOVERS = Configuration(*ALWAYS, *ONE_CART, Failovers="TRUE")
FAILOVERS_ONE_WORKER = Configuration(
    *ALWAYS, *ONE_CART, *REFUSED, Prices="{1, 2}", Tasks=ONE_WORKER, MaxAttempts="3", Failovers="TRUE", Quiet="TRUE"
)
FAILOVERS_TWO_REQUESTS = Configuration(
    *ALWAYS,
    *ONE_CART,
    "PlacedOrdersHaveTheirContent",
    Requests=BOTH,
    HasKey="FALSE",
    Tasks=ONE_WORKER,
    MaxAttempts="3",
    Failovers="TRUE",
    Quiet="TRUE",
)
OUTBOX = Configuration(
    *ALWAYS,
    *NOTIFIED,
    *LOST_CART,
    Tasks=ONE_WORKER,
    MaxAttempts="1",
    Failovers="TRUE",
    Kinds='{"email", "empty_cart"}',
    Purchases="TRUE",
)
CART_OF_KEYS = Configuration(
    *CART, Requests=BOTH, OneScope="FALSE", Tasks=ONE_WORKER, Kinds='{"empty_cart"}', Items="2"
)
CART_OF_ETAGS = CART_OF_KEYS.but(OneScope="TRUE", HasKey="FALSE", MaxAttempts="1")
OLD_KEYS = CART_OF_KEYS.but(MaxAttempts="1", Retention="TRUE", Purchases="TRUE")
TWO_LOST_KEYS = TWO_KEYS.but(*ALWAYS, *ONE_CART, Failovers="TRUE", Tasks=ONE_WORKER, Quiet="FALSE", Purchases="TRUE")
LOST_KEYS = CART_OF_KEYS.but(*LOST_CART, MaxAttempts="1", Failovers="TRUE", Items="1", Purchases="TRUE")
LOST_ETAGS = LOST_KEYS.but(OneScope="TRUE", HasKey="FALSE")
LOST_KEY = LOST_KEYS.but(Requests="{ann}", MaxAttempts="2", Items="2")

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
    "failovers": FAILOVERS.but(*ALWAYS, *ONE_CART, *REFUSED, Quiet="TRUE", MaxAttempts="3"),
    "failovers, one worker at a time": FAILOVERS_ONE_WORKER,
    "failovers, one worker, two requests": FAILOVERS_TWO_REQUESTS,
}

SAFEGUARDS = {
    "payment's key": (ONE_REQUEST.without("payment's key"), "OneChargeAScope"),
    "fence": (ONE_REQUEST.without("fence"), "ReleasedOrdersAreNotCharged"),
    "claim": (ONE_REQUEST.without("claim"), "ReleasedOrdersAreNotCharged"),
    "shipping's fence": (ONE_REQUEST.without("shipping's fence"), "ShipmentsAreCharged"),
    "cart constraint": (TWO_KEYS.without("cart constraint"), "OneChargeACart"),
    "review": (FOREIGN_SHIPPING.without("review"), "ShipmentsAreCharged"),
    "derived id": (FAILOVERS.without("derived id"), "OneChargeAScope"),
    "report of fences": (
        FAILOVERS_ONE_WORKER.without("report of fences"),
        "RefusedOrdersAreNotCharged",
    ),
    "fingerprint of charges": (
        FAILOVERS_TWO_REQUESTS.but(Quiet="FALSE").without("fingerprint of charges"),
        "PlacedOrdersHaveTheirContent",
    ),
    "settle's lock": (OUTBOX.but(Failovers="FALSE").without("settle's lock"), "ShippedOrdersHaveItems"),
    "shipment before removal": (CART_OF_KEYS.without("shipment before removal"), "ItemsAreBoughtOnce"),
    "constraint, impatient customers": (CART_OF_KEYS.without("cart constraint"), "ItemsAreBoughtOnce"),
    **{
        name: (CART_OF_KEYS.without(name), "ItemsAreBoughtOnce")
        for name in ("generation of the removal", "reading at reopening")
    },
    "retention's guards": (OLD_KEYS.but(MaxAttempts="2").without("retention's guards"), "ItemsAreBoughtOnce"),
    "proof of shipments": (OLD_KEYS.without("proof of shipments"), "ShipmentsAreCharged"),
    "one charge a purchase": (LOST_KEYS.but(Purchases="FALSE"), "NoItemIsShippedTwice"),
    "a key's purchase": (LOST_KEY.without("a key's purchase"), "NoItemVanishes"),
    "a key's purchase, old keys": (OLD_KEYS.without("a key's purchase"), "ItemsAreBoughtOnce"),
}

# Guarantees that a journal that loses commits does not give: a change that gives one of them belongs into HOLD.
LIMITS = {
    "shipped, lost, left in the cart": (LOST_KEYS.but(*CART[1:2]), "ItemsAreBoughtOnce"),
}
