"""Carts: what they may hold, and what a store of them promises."""

import secrets
from dataclasses import dataclass
from typing import Protocol

from chassis.errors import FailedPrecondition, Unavailable
from chassis.fields import parse_idempotency_key, require_between, require_text

MAX_LINES = 200
MAX_QUANTITY = 2**31 - 1
"""Of one product in a cart: the wire's int32."""

_MAX_ADDED = 10_000
_MAX_USER_ID_LENGTH = 128
_MAX_PRODUCT_ID_LENGTH = 64


class CartFull(FailedPrecondition):
    """The cart has as many different products as it may have."""

    def __init__(self) -> None:
        super().__init__(f"a cart holds at most {MAX_LINES} different products")


class QuantityTooLarge(FailedPrecondition):
    """The cart would have more of a product than the contract can say."""

    def __init__(self) -> None:
        super().__init__(f"a cart holds at most {MAX_QUANTITY} of a product")


class StoreUnavailable(Unavailable):
    """The store does not answer. Whether a change that was asked of it took place is unknown."""

    def __init__(self) -> None:
        super().__init__("carts are unavailable", retry_after_seconds=1)


@dataclass(frozen=True, slots=True)
class Line:
    """So many of a product."""

    product_id: str
    quantity: int


@dataclass(frozen=True, slots=True)
class Cart:
    """A user's cart, its lines sorted by product.

    The etag names this state of this cart: each change makes a new one, at random, so that it is never met again. No
    state is kept of an empty cart, so it has a new etag each time it is read.
    """

    user_id: str
    lines: tuple[Line, ...]
    etag: str


@dataclass(frozen=True, slots=True)
class Addition:
    """A quantity, 1 to 10,000, of a product for a user's cart. Raises InvalidArgument naming the request's field.

    With a key it has its effect once, however often it is asked for. Without one it has its effect each time.
    """

    user_id: str
    product_id: str
    quantity: int
    key: str | None = None

    def __post_init__(self) -> None:
        check_user_id(self.user_id)
        require_text(self.product_id, "item.product_id", max_length=_MAX_PRODUCT_ID_LENGTH)
        require_between(self.quantity, "item.quantity", 1, _MAX_ADDED)
        if self.key is not None:
            parse_idempotency_key(self.key)


def check_user_id(user_id: str) -> str:
    """Pass a user's id of 1 to 128 characters; raises InvalidArgument for any other."""
    return require_text(user_id, "user_id", max_length=_MAX_USER_ID_LENGTH)


def new_etag() -> str:
    """Make an etag that no cart ever had."""
    return secrets.token_hex(16)


class CartStore(Protocol):
    """Keeps carts, each until some time after its last change. Each method is atomic and may raise StoreUnavailable."""

    async def add(self, addition: Addition) -> None:
        """Add to the user's cart, unless the addition's key says that it was done.

        Raises CartFull, QuantityTooLarge and IdempotencyKeyReused, and then has changed nothing.
        """

    async def read(self, user_id: str) -> Cart:
        """Read a cart; one without lines when there is none."""

    async def empty(self, user_id: str, if_match: str | None) -> None:
        """Remove a cart; with `if_match` only while that is its etag."""

    async def check(self) -> None:
        """Return if the store answers."""
