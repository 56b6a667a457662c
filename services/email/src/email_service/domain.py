"""Order confirmations, and what accepts them for delivery."""

import hashlib
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol

from chassis.errors import FailedPrecondition, InvalidArgument, NotFound, Unavailable
from chassis.values.fields import limit_count, limit_text, require_text
from chassis.values.money import Money, total

MAX_LINES = 1000
MAX_ID_LENGTH = 128
MAX_TEXT_LENGTH = 256

_PLAIN_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,127}")


class MailNotSent(Unavailable):
    """The e-mail could not be stored; a retry may succeed."""


class MailNotFound(NotFound):
    """No confirmation of this order was accepted, or it was deleted because of its age."""


class RecipientRefused(FailedPrecondition):
    """The relay has permanently refused this e-mail, which was accepted before."""


@dataclass(frozen=True, slots=True)
class Line:
    """A product in an order; the cost is that of the whole quantity."""

    product_id: str
    quantity: int
    cost: Money


@dataclass(frozen=True, slots=True)
class Address:
    """The shipping address; unknown parts are empty or zero."""

    street_address: str
    city: str
    state: str
    country: str
    zip_code: int

    @property
    def lines(self) -> list[str]:
        """The lines of an address label, without blank ones."""
        region = " ".join(filter(None, [self.state, str(self.zip_code or "")]))
        lines = [*self.street_address.splitlines(), ", ".join(filter(None, [self.city, region])), self.country]
        return [line for line in map(str.strip, lines) if line]


@dataclass(frozen=True, slots=True)
class Order:
    """A placed order. Raises InvalidArgument for a field beyond its limit and for mixed currencies."""

    order_id: str
    tracking_id: str
    lines: Sequence[Line]
    shipping_cost: Money
    address: Address

    def __post_init__(self) -> None:
        require_text(self.order_id, "order.order_id", max_length=MAX_ID_LENGTH)
        limit_text(self.tracking_id, "order.shipping_tracking_id", max_length=MAX_TEXT_LENGTH)
        limit_count(self.lines, "order.items", max_count=MAX_LINES)
        for part in ("street_address", "city", "state", "country"):
            limit_text(getattr(self.address, part), f"order.shipping_address.{part}", max_length=MAX_TEXT_LENGTH)
        for index, line in enumerate(self.lines):
            limit_text(line.product_id, f"order.items[{index}].item.product_id", max_length=MAX_TEXT_LENGTH)
            if line.cost.currency_code != self.shipping_cost.currency_code:
                raise InvalidArgument.field(f"order.items[{index}].cost.currency_code", "must be that of shipping_cost")

    @property
    def total(self) -> Money:
        """The sum of all lines and the shipping cost. Raises AmountOutOfRange."""
        costs = [line.cost for line in self.lines]
        return total(self.shipping_cost.currency_code, [*costs, self.shipping_cost]).in_range()


@dataclass(frozen=True, slots=True)
class ConfirmationEmail:
    """An e-mail that confirms an order to one address, as plain text and as HTML."""

    order_id: str
    recipient: str
    subject: str
    text: str
    html: str

    @property
    def key(self) -> str:
        return key_of(self.order_id)


def key_of(order_id: str) -> str:
    """Return the id of an order's letter and message: the order's id, or its hash if it is unsafe in a header."""
    if _PLAIN_ID.fullmatch(order_id):
        return order_id
    return "sha256-" + hashlib.sha256(order_id.encode()).hexdigest()


class ProductNames(Protocol):
    """Names of products, as far as they are available at once: an e-mail does not wait for them."""

    async def current(self) -> Mapping[str, str]:
        """Return names by product id, an empty mapping while there are none. Raises nothing."""


class Mailer(Protocol):
    """Accepts e-mails for delivery. E-mails with the same key are one e-mail: the first that is accepted."""

    async def accept(self, emails: Sequence[ConfirmationEmail]) -> Collection[str]:
        """Return once all e-mails are on disk, after one flush. Raise MailNotSent.

        Return the ids of those orders whose e-mails were accepted before and permanently refused by the relay.
        """


class MailState(StrEnum):
    """How far an accepted e-mail is. FAILED: it is not sent again unless an operator requeues it."""

    QUEUED = "QUEUED"
    SENT = "SENT"
    FAILED = "FAILED"


@dataclass(frozen=True, slots=True)
class MailRecord:
    """An accepted e-mail. `reason`: why it was not sent; empty if there was no failure."""

    state: MailState
    reason: str = ""


@dataclass(frozen=True, slots=True)
class StoredMail:
    """An accepted e-mail with its MIME message, which is empty if it was deleted after the relay accepted it."""

    record: MailRecord
    message: bytes = field(repr=False)


class MailIndex(Protocol):
    """Finds accepted e-mails."""

    async def read(self, order_id: str) -> StoredMail | None:
        """Return the confirmation of an order with its message, None if there is none. Raises Unavailable."""

    @property
    def complete_since(self) -> float:
        """The time, in seconds since 1970, from which on no e-mail was deleted because of its age."""
