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
"""The largest quantity of one product in a cart: the largest int32, its type on the wire."""
KEY_TTL_SECONDS = 24 * 3600.0
"""How long an idempotency key is stored."""
ANONYMOUS_TTL_SECONDS = 12 * 3600.0
"""Lifetime of an anonymous cart after its last change, and of its idempotency keys."""

_MAX_ADDED = 10_000
_MAX_USER_ID_LENGTH = 128
_MAX_PRODUCT_ID_LENGTH = 64
_GENERATION_LENGTH = 16
# The etag of an ordered cart is returned as metadata, which allows no other characters.
_ETAG = re.compile(r"[\x21-\x7e]{0,128}")


class CartFull(FailedPrecondition):
    """The cart already holds the maximum number of different products."""

    def __init__(self) -> None:
        super().__init__(f"a cart holds at most {MAX_LINES} different products")


class QuantityTooLarge(FailedPrecondition):
    """The quantity of a product in the cart would not fit into an int32."""

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

    The etag identifies this state of this cart: a random value that is replaced by every change and never reused. An
    empty cart has a new etag each time it is read. If an order emptied it, `ordered_etag` is the etag or generation by
    which the order named it.
    """

    user_id: str
    lines: tuple[Line, ...]
    etag: str
    ordered_etag: str | None = None

    @property
    def generation(self) -> str | None:
        """The generation of the lines, or of those that an order removed; None if there is neither."""
        etag = self.etag if self.lines else self.ordered_etag
        return etag and generation_of(etag)


@dataclass(frozen=True, slots=True)
class Addition:
    """A request to add a quantity of 1 to 10,000 of a product to a user's cart. Raises InvalidArgument.

    With an idempotency key it takes effect once, however often it is repeated; without one, each time. A cart with
    anonymous additions alone is of little worth until an order buys from it.
    """

    user_id: str
    product_id: str
    quantity: int
    key: str | None = None
    anonymous: bool = field(default=False, compare=False)

    def __post_init__(self) -> None:
        check_user_id(self.user_id)
        require_text(self.product_id, "item.product_id", max_length=_MAX_PRODUCT_ID_LENGTH)
        require_between(self.quantity, "item.quantity", 1, _MAX_ADDED)
        if self.key is not None:
            parse_idempotency_key(self.key)


@dataclass(frozen=True, slots=True)
class NewQuantity:
    """A request to set the quantity of a product in a user's cart, 0 to remove it. Raises InvalidArgument."""

    user_id: str
    product_id: str
    quantity: int

    def __post_init__(self) -> None:
        check_user_id(self.user_id)
        require_text(self.product_id, "item.product_id", max_length=_MAX_PRODUCT_ID_LENGTH)
        require_between(self.quantity, "item.quantity", 0, _MAX_ADDED)


@dataclass(frozen=True, slots=True)
class Purchase:
    """The lines that an order bought from a user's cart of this etag, or of this generation. Raises InvalidArgument."""

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


def check_user_id(user_id: str) -> str:
    """Return a user id of 1 to 128 characters. Raise InvalidArgument for any other."""
    return require_text(user_id, "user_id", max_length=_MAX_USER_ID_LENGTH)


def new_etag(previous: str = "") -> str:
    """Return an etag of the same generation as the previous one, or of a new generation."""
    return (generation_of(previous) or secrets.token_hex(8)) + secrets.token_hex(8)


def generation_of(etag: str) -> str:
    """Return the part of an etag that stays while items are added or changed."""
    return etag[:_GENERATION_LENGTH]


@dataclass(frozen=True, slots=True)
class Contents:
    """What a store holds of a cart; its methods return what a change leaves, or itself if there is nothing to change.

    Without quantities, the etag is what an order named the cart by that it emptied; without an etag, there is no cart.
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
        """Begin a new generation, of a customer's cart; a repeat finds another generation than the ordered one."""
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
    """Stores carts, each until its lifetime after the last change ends.

    Every method is atomic and may raise StoreUnavailable.
    """

    async def add(self, addition: Addition) -> bool:
        """Add to the user's cart. Return False if an addition with the same key was made before.

        Raise CartFull, QuantityTooLarge or IdempotencyKeyReused, without any change.
        """

    async def read(self, user_id: str) -> Cart:
        """Return a cart; one without lines when none is stored."""

    async def empty(self, user_id: str, if_match: str | None) -> None:
        """Remove a cart; with `if_match` only if that is its current etag."""

    async def set_quantity(self, new: NewQuantity) -> None:
        """Set the quantity of a product, or remove it; do nothing if it is not in the cart."""

    async def remove_ordered(self, purchase: Purchase) -> None:
        """Remove each ordered quantity, as far as the cart has it, and begin a new generation.

        Do nothing if the cart has another generation than the one that was ordered.
        """

    async def check(self) -> None:
        """Return when the store responds."""
