"""Orders and their confirmations."""

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from chassis.errors import FailedPrecondition, InvalidArgument, NotFound, Unavailable
from chassis.values.countries import format_postal_code
from chassis.values.digests import digest, items_digest, prices_digest
from chassis.values.fields import limit_count, limit_text, require_text
from chassis.values.money import Money, total
from chassis.values.orders import Address, OrderLine, check_address

MAX_LINES = 1000
MAX_ID_LENGTH = 128
MAX_TEXT_LENGTH = 256

_PLAIN_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,127}")


class MailNotSent(Unavailable):
    """The confirmation could not be stored; a retry may succeed."""


class MailNotFound(NotFound):
    """The order's confirmation was never accepted, or was deleted after its retention period."""


class RecipientRefused(FailedPrecondition):
    """The relay permanently refused the order's confirmation after an earlier request."""


def label(address: Address) -> list[str]:
    """Return the lines of an address label, omitting blank lines."""
    region = " ".join(filter(None, [address.state, format_postal_code(address.zip_code, address.country)]))
    lines = [*address.street_address.splitlines(), ", ".join(filter(None, [address.city, region])), address.country]
    return [line for line in map(str.strip, lines) if line]


@dataclass(frozen=True)
class Order:
    """A placed order. Creating one raises InvalidArgument if a field exceeds its limit or the currencies differ."""

    order_id: str
    tracking_id: str
    lines: Sequence[OrderLine]
    shipping_cost: Money
    address: Address

    def __post_init__(self) -> None:
        require_text(self.order_id, "order.order_id", max_length=MAX_ID_LENGTH)
        limit_text(self.tracking_id, "order.shipping_tracking_id", max_length=MAX_TEXT_LENGTH)
        limit_count(self.lines, "order.items", max_count=MAX_LINES)
        check_address(self.address, "order.shipping_address", is_complete=False)
        for index, line in enumerate(self.lines):
            limit_text(line.product_id, f"order.items[{index}].item.product_id", max_length=MAX_TEXT_LENGTH)
            if line.cost.currency_code != self.shipping_cost.currency_code:
                raise InvalidArgument.field(f"order.items[{index}].cost.currency_code", "must be that of shipping_cost")

    @cached_property
    def total(self) -> Money:
        """The total of all lines and shipping. Raise AmountOutOfRange if its units don't fit in an int64."""
        costs = [line.cost for line in self.lines]
        return total(self.shipping_cost.currency_code, [*costs, self.shipping_cost]).in_range()


def digests_of(recipient: str, order: Order, content: bytes) -> bytes:
    """Return 4-byte digests of the recipient, the confirmation, its prices and the message's content.

    The spool keeps these digests after it has deleted the recipient and the content.
    """
    items = items_digest(order.lines)
    confirmation = digest(order.order_id, order.tracking_id, str(order.total), items, order.address)
    prices = prices_digest(order.lines, order.shipping_cost)
    return digest(message_id_of(order.order_id), recipient) + confirmation + prices + digest(content)


def current_digests(message_id: str, recipient: str, content: bytes, accepted: bytes) -> bytes:
    """Return the digests of an unsent message in the spool. They differ from `accepted` if it has since been altered.

    Of a message that an older release accepted without digests, return only the recipient's.
    """
    confirmation, prices, accepted_content = accepted[4:8], accepted[8:12], accepted[12:]
    if not content or accepted_content not in {b"", digest(content)}:
        confirmation = digest(message_id, content)  # matches no order's digest, so reconciliation reports the message
    return digest(message_id, recipient) + confirmation + prices + accepted_content


@dataclass(frozen=True, slots=True)
class Confirmation:
    """The rendered e-mail that confirms an order, as plain text and as HTML."""

    message_id: str
    recipient: str
    subject: str
    text: str
    html: str


def message_id_of(order_id: str) -> str:
    """Return the id of an order's confirmation message: the order id or, if that is unsafe in a header, its hash."""
    if _PLAIN_ID.fullmatch(order_id):
        return order_id
    return "sha256-" + hashlib.sha256(order_id.encode()).hexdigest()
