"""Outcomes of calls to payment and shipping, as the saga distinguishes them."""

from dataclasses import dataclass
from typing import TypeAlias

from checkout_service.domain import Refusal


@dataclass(frozen=True, slots=True)
class Charged:
    """The card was charged under the key, now or earlier."""

    transaction_id: str


@dataclass(frozen=True, slots=True)
class Refused:
    """A final refusal: the peer did nothing, and a retry will not help."""

    refusal: Refusal


@dataclass(frozen=True, slots=True)
class Fenced:
    """The key is fenced: no charge or shipment under it has succeeded or can succeed.

    `existing`: the fence was there before. A foreign peer may not report that.
    """

    existing: bool = False


@dataclass(frozen=True, slots=True)
class Released:
    """The charge under the key was voided."""


@dataclass(frozen=True, slots=True)
class KeyReused:
    """Another charge or shipment has the key: one with another amount, card, address or other lines.

    `transaction_id`: of that charge if it is captured; empty if unknown.
    """

    transaction_id: str = ""


@dataclass(frozen=True, slots=True)
class InDoubt:
    """Whether the call had its effect is unknown. The reason is for operators."""

    reason: str


@dataclass(frozen=True, slots=True)
class Unsupported:
    """The peer does not implement the method."""


@dataclass(frozen=True, slots=True)
class Shipped:
    """The order was shipped."""

    tracking_id: str


ChargeOutcome: TypeAlias = Charged | Refused | Fenced | Released | KeyReused | InDoubt | Unsupported
VoidOutcome: TypeAlias = Released | Refused | InDoubt | Unsupported
ShipOutcome: TypeAlias = Shipped | Refused | Fenced | KeyReused | InDoubt | Unsupported
