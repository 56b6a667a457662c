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
    """The key is fenced: no charge under it has succeeded or can succeed."""


@dataclass(frozen=True, slots=True)
class Released:
    """The charge under the key was voided."""


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


ChargeOutcome: TypeAlias = Charged | Refused | Fenced | Released | InDoubt | Unsupported
VoidOutcome: TypeAlias = Released | Refused | InDoubt | Unsupported
ShipOutcome: TypeAlias = Shipped | Refused | InDoubt
