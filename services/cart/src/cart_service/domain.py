"""Carts, their limits, and the interface that cart stores implement."""

import re
import secrets
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Protocol

from chassis.errors import FailedPrecondition, InvalidArgument, Unavailable
from chassis.values.fields import limit_count, parse_idempotency_key, require_between, require_text
from chassis.values.orders import Item

MAX_LINES = 200
MAX_QUANTITY = 2**31 - 1
"""The largest quantity of a product in a cart: gRPC messages hold quantities as int32."""
KEY_TTL_SECONDS = 24 * 3600.0
"""How long an idempotency key is stored."""
ANONYMOUS_TTL_SECONDS = 12 * 3600.0
"""How long an anonymous cart is stored after its last change, and how long its idempotency keys are stored."""

_MAX_ADDED = 10_000
_MAX_USER_ID_LENGTH = 128
_MAX_PRODUCT_ID_LENGTH = 64
_GENERATION_LENGTH = 16
# GetCart returns an ordered cart's etag in gRPC metadata, which allows only ASCII.
_ETAG = re.compile(r"[\x21-\x7e]{0,128}")


class CartFull(FailedPrecondition):
    """The cart already holds the maximum number of different products."""

    def __init__(self) -> None:
        super().__init__(f"a cart holds at most {MAX_LINES} different products")


class QuantityTooLarge(FailedPrecondition):
    """The quantity of a product in the cart would no longer fit into an int32."""

    def __init__(self) -> None:
        super().__init__(f"a cart holds at most {MAX_QUANTITY} of a product")


class StoreUnavailable(Unavailable):
    """The store does not respond. A requested change may or may not have taken effect."""

    def __init__(self) -> None:
        super().__init__("carts are unavailable", retry_after_seconds=1)


@dataclass(frozen=True, slots=True)
class Addition:
    """A request to add 1 to 10,000 units of a product to a user's cart. Raises InvalidArgument if a field is invalid.

    Repeating an addition with the same idempotency key adds nothing. A cart is anonymous if all additions to it were
    anonymous. The store may evict an anonymous cart, unless an order was placed from it.
    """

    user_id: str
    product_id: str
    quantity: int
    key: str | None = None
    anonymous: bool = field(default=False, compare=False)

    def __post_init__(self) -> None:
        _check_item(self, 1, _MAX_ADDED)
        if self.key is not None:
            parse_idempotency_key(self.key)


@dataclass(frozen=True, slots=True)
class NewQuantity:
    """A request to set a product's quantity; 0 removes the product. Raises InvalidArgument if a field is invalid."""

    user_id: str
    product_id: str
    quantity: int

    def __post_init__(self) -> None:
        _check_item(self, 0, MAX_QUANTITY)


@dataclass(frozen=True, slots=True)
class Purchase:
    """An order's lines, and the etag or generation of its cart. Raises InvalidArgument if a field is invalid."""

    user_id: str
    etag: str
    lines: tuple[Item, ...]

    def __post_init__(self) -> None:
        check_user_id(self.user_id)
        if not _ETAG.fullmatch(self.etag):
            raise InvalidArgument.field("etag", "must be at most 128 visible ASCII characters")
        limit_count(self.lines, "items", max_count=MAX_LINES)
        for index, line in enumerate(self.lines):
            require_text(line.product_id, f"items[{index}].product_id", max_length=_MAX_PRODUCT_ID_LENGTH)
            require_between(line.quantity, f"items[{index}].quantity", 1, MAX_QUANTITY)


def _check_item(request: Addition | NewQuantity, lowest: int, highest: int) -> None:
    check_user_id(request.user_id)
    require_text(request.product_id, "item.product_id", max_length=_MAX_PRODUCT_ID_LENGTH)
    require_between(request.quantity, "item.quantity", lowest, highest)


def check_user_id(user_id: str) -> str:
    """Return the user id. Raise InvalidArgument unless it has 1 to 128 characters."""
    return require_text(user_id, "user_id", max_length=_MAX_USER_ID_LENGTH)


def new_etag(previous: str = "") -> str:
    """Return a new etag in the previous etag's generation or, without a previous etag, in a new generation."""
    return (generation_of(previous) or secrets.token_hex(8)) + secrets.token_hex(8)


def generation_of(etag: str) -> str:
    """Return an etag's generation: the part that stays the same until the cart is ordered or emptied."""
    return etag[:_GENERATION_LENGTH]


@dataclass(frozen=True, slots=True)
class Cart:
    """A cart's quantities by product id. Each method that changes a cart returns a new one, or `self` without a change.

    The etag identifies this state: every change replaces it. If there is no cart, it is empty. After an order has
    emptied the cart, it is the ordered cart's etag or generation.
    """

    quantities: Mapping[str, int] = field(default_factory=dict)
    etag: str = ""
    anonymous: bool = False

    @property
    def lines(self) -> tuple[Item, ...]:
        return tuple(Item(*line) for line in sorted(self.quantities.items()))

    def add(self, addition: Addition) -> "Cart":
        """Add the product. Raise CartFull or QuantityTooLarge if the cart cannot hold the addition."""
        before = self.quantities.get(addition.product_id, 0)
        if not before and len(self.quantities) >= MAX_LINES:
            raise CartFull
        if before + addition.quantity > MAX_QUANTITY:
            raise QuantityTooLarge
        after = {**self.quantities, addition.product_id: before + addition.quantity}
        etag = new_etag(self.etag if self.quantities else "")
        return Cart(after, etag, addition.anonymous and (self.anonymous or not self.etag))

    def empty(self, if_match: str | None) -> "Cart":
        return Cart() if self.quantities and if_match in {None, self.etag} else self

    def set_quantity(self, new: NewQuantity) -> "Cart":
        if new.product_id not in self.quantities:
            return self
        changed = {**self.quantities, new.product_id: new.quantity}
        left = {product_id: quantity for product_id, quantity in changed.items() if quantity}
        return replace(self, quantities=left, etag=new_etag(self.etag)) if left else Cart()

    def remove_ordered(self, purchase: Purchase) -> "Cart":
        """Remove the ordered items and reset `anonymous`. The rest gets a new generation, so a repeat has no effect."""
        if not self.quantities or generation_of(self.etag) != generation_of(purchase.etag):
            return self
        remaining = Counter(self.quantities)
        for line in purchase.lines:
            remaining[line.product_id] -= line.quantity
        remaining = +remaining
        return Cart(remaining, new_etag() if remaining else purchase.etag)


class CartStore(Protocol):
    """Stores carts until they expire. Methods are atomic and raise StoreUnavailable if the store doesn't respond."""

    async def add(self, addition: Addition) -> bool:
        """Add a product to the user's cart. Return False if it was already added with this idempotency key.

        If the cart cannot hold the addition, raise CartFull or QuantityTooLarge. If the key was used for a different
        addition, raise IdempotencyKeyReused. These errors leave the cart unchanged.
        """

    async def read(self, user_id: str) -> Cart:
        """Return the user's cart, or an empty cart if none is stored."""

    async def empty(self, user_id: str, if_match: str | None) -> None:
        """Remove a cart, unless `if_match` is given and differs from the cart's current etag."""

    async def set_quantity(self, new: NewQuantity) -> None:
        """Set a product's quantity; 0 removes the product. Do nothing if the product is not in the cart."""

    async def remove_ordered(self, purchase: Purchase) -> None:
        """If the cart still has the ordered generation, remove the ordered items and begin a new generation."""

    async def check(self) -> None:
        """Raise StoreUnavailable unless the store responds."""
