"""Carts, their limits, and the contract of a store for them."""

import re
import secrets
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Protocol

from chassis.errors import FailedPrecondition, InvalidArgument, Unavailable
from chassis.values.fields import limit_count, parse_idempotency_key, require_between, require_text

MAX_LINES = 200
MAX_QUANTITY = 2**31 - 1
"""The largest quantity of one product in a cart: an int32 on the wire."""
KEY_TTL_SECONDS = 24 * 3600.0
"""How long an idempotency key is stored."""
ANONYMOUS_TTL_SECONDS = 12 * 3600.0
"""Lifetime of an anonymous cart after its last change, and of its idempotency keys."""

_MAX_ADDED = 10_000
_MAX_USER_ID_LENGTH = 128
_MAX_PRODUCT_ID_LENGTH = 64
_GENERATION_LENGTH = 16
# The etag of an ordered cart is returned in metadata, which allows no other characters.
_ETAG = re.compile(r"[\x21-\x7e]{0,128}")


class CartFull(FailedPrecondition):
    """The cart already holds the maximum number of different products."""

    def __init__(self) -> None:
        super().__init__(f"a cart holds at most {MAX_LINES} different products")


class QuantityTooLarge(FailedPrecondition):
    """The quantity of a product in the cart would exceed an int32."""

    def __init__(self) -> None:
        super().__init__(f"a cart holds at most {MAX_QUANTITY} of a product")


class StoreUnavailable(Unavailable):
    """The store does not respond. Whether a requested change took effect is unknown."""

    def __init__(self) -> None:
        super().__init__("carts are unavailable", retry_after_seconds=1)


@dataclass(frozen=True, slots=True)
class Line:
    product_id: str
    quantity: int


@dataclass(frozen=True, slots=True)
class Cart:
    """A user's cart, its lines sorted by product id.

    The etag identifies this state of this cart: each change replaces it by a new random value. An empty cart has a new
    etag each time it is read. If an order emptied it, `ordered_etag` is the etag or generation that the order named.
    """

    user_id: str
    lines: tuple[Line, ...]
    etag: str
    ordered_etag: str | None = None

    @property
    def generation(self) -> str | None:
        """The generation of the lines, or of those that an order removed, or None."""
        etag = self.etag if self.lines else self.ordered_etag
        return etag and generation_of(etag)


@dataclass(frozen=True, slots=True)
class Addition:
    """A request to add a quantity of 1 to 10,000 of a product to a user's cart. Raise InvalidArgument.

    With an idempotency key it takes effect once, without one each time. A cart that only anonymous additions have
    changed is anonymous: it may be evicted until an order buys from it.
    """

    user_id: str
    product_id: str
    quantity: int
    key: str | None = None
    anonymous: bool = field(default=False, compare=False)

    def __post_init__(self) -> None:
        _check_item(self, lowest=1)
        if self.key is not None:
            parse_idempotency_key(self.key)


@dataclass(frozen=True, slots=True)
class NewQuantity:
    """A request to set the quantity of a product in a user's cart, or to remove it with 0. Raise InvalidArgument."""

    user_id: str
    product_id: str
    quantity: int

    def __post_init__(self) -> None:
        _check_item(self, lowest=0)


@dataclass(frozen=True, slots=True)
class Purchase:
    """The lines that an order bought from a user's cart of this etag or generation. Raise InvalidArgument."""

    user_id: str
    etag: str
    lines: tuple[Line, ...]

    def __post_init__(self) -> None:
        check_user_id(self.user_id)
        if not _ETAG.fullmatch(self.etag):
            raise InvalidArgument.field("etag", "must be at most 128 visible ASCII characters")
        limit_count(self.lines, "items", max_count=MAX_LINES)
        for index, line in enumerate(self.lines):
            require_text(line.product_id, f"items[{index}].product_id", max_length=_MAX_PRODUCT_ID_LENGTH)
            require_between(line.quantity, f"items[{index}].quantity", 1, MAX_QUANTITY)


def _check_item(request: Addition | NewQuantity, *, lowest: int) -> None:
    check_user_id(request.user_id)
    require_text(request.product_id, "item.product_id", max_length=_MAX_PRODUCT_ID_LENGTH)
    require_between(request.quantity, "item.quantity", lowest, _MAX_ADDED)


def check_user_id(user_id: str) -> str:
    """Return a user id of 1 to 128 characters. Raise InvalidArgument for any other."""
    return require_text(user_id, "user_id", max_length=_MAX_USER_ID_LENGTH)


def new_etag(previous: str = "") -> str:
    """Return a new etag, of the generation of the previous one or of a new generation."""
    return (generation_of(previous) or secrets.token_hex(8)) + secrets.token_hex(8)


def generation_of(etag: str) -> str:
    """Return the part of an etag that adding and changing items leaves as it is."""
    return etag[:_GENERATION_LENGTH]


@dataclass(frozen=True, slots=True)
class Contents:
    """What a store holds of a cart. Its methods return what a change leaves, or itself if nothing changes.

    Without quantities, the etag is what the order that emptied the cart named; without an etag, there is no cart.
    """

    quantities: Mapping[str, int] = field(default_factory=dict)
    etag: str = ""
    anonymous: bool = False

    def add(self, addition: Addition) -> "Contents":
        """Raise CartFull or QuantityTooLarge if the cart cannot hold it."""
        before = self.quantities.get(addition.product_id, 0)
        if not before and len(self.quantities) >= MAX_LINES:
            raise CartFull
        if before + addition.quantity > MAX_QUANTITY:
            raise QuantityTooLarge
        after = {**self.quantities, addition.product_id: before + addition.quantity}
        etag = new_etag(self.etag if self.quantities else "")
        return Contents(after, etag, addition.anonymous and (self.anonymous or not self.etag))

    def empty(self, if_match: str | None) -> "Contents":
        return Contents() if self.quantities and if_match in {None, self.etag} else self

    def set_quantity(self, new: NewQuantity) -> "Contents":
        if new.product_id not in self.quantities:
            return self
        changed = {**self.quantities, new.product_id: new.quantity}
        left = {product_id: quantity for product_id, quantity in changed.items() if quantity}
        return replace(self, quantities=left, etag=new_etag(self.etag)) if left else Contents()

    def remove_ordered(self, purchase: Purchase) -> "Contents":
        """Begin a new generation, so a repeat has no effect. The cart is a customer's from now on."""
        if not self.quantities or generation_of(self.etag) != generation_of(purchase.etag):
            return self
        remaining = Counter(self.quantities)
        for line in purchase.lines:
            remaining[line.product_id] -= line.quantity
        remaining = +remaining
        return Contents(remaining, new_etag() if remaining else purchase.etag)

    def cart(self, user_id: str) -> Cart:
        if not self.quantities:
            return Cart(user_id, (), new_etag(), ordered_etag=self.etag or None)
        return Cart(user_id, tuple(Line(*line) for line in sorted(self.quantities.items())), self.etag)


class CartStore(Protocol):
    """Stores each cart for its lifetime after the last change. Methods are atomic, and raise StoreUnavailable."""

    async def add(self, addition: Addition) -> bool:
        """Add to the user's cart. Return False if the same addition was made before with this key.

        Raise CartFull, QuantityTooLarge or IdempotencyKeyReused without any change.
        """

    async def read(self, user_id: str) -> Cart:
        """Return a cart, without lines if none is stored."""

    async def empty(self, user_id: str, if_match: str | None) -> None:
        """Remove a cart, with `if_match` only if that is its current etag."""

    async def set_quantity(self, new: NewQuantity) -> None:
        """Set the quantity of a product, or remove it; do nothing if it is not in the cart."""

    async def remove_ordered(self, purchase: Purchase) -> None:
        """Remove the ordered quantities and begin a new generation, if the cart is of the ordered generation."""

    async def check(self) -> None:
        """Return when the store responds."""
