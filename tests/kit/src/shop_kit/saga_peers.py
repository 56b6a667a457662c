"""Models of payment and shipping that follow the contract."""

from dataclasses import dataclass, field
from typing import NamedTuple

from chassis.values.orders import Card
from checkout_service.commands import (
    Charged,
    ChargeOutcome,
    Fenced,
    KeyReused,
    Refused,
    ShipOutcome,
    Shipped,
    Unsupported,
    Voided,
    VoidOutcome,
)
from checkout_service.domain import Order, Refusal

REFUSED = Refused(Refusal("FailedPrecondition", "NO", "no"))
UNCHARGED: dict[str, ChargeOutcome] = {"FENCED": Fenced(existing=True), "DECLINED": REFUSED, "VOIDED": Voided()}


class Content(NamedTuple):
    """What a charge or a shipment is for."""

    request: str
    nanos: int


@dataclass
class PaymentModel:
    """Charges once per key, and never under a fenced key; without a ledger, charges whenever it is called.

    Attributes:
        declined: fingerprints of requests whose card is declined.
        records_declines: otherwise a declined card is like a malformed one.
        ledger: state and content by key.
        captured: keys of charges, one for each time that a card was charged and not voided.
    """

    declined: frozenset[str] = frozenset()
    records_declines: bool = True
    has_ledger: bool = True
    ledger: dict[str, tuple[str, Content | None]] = field(default_factory=dict)
    captured: list[str] = field(default_factory=list)

    async def charge(self, key: str, order: Order, card: Card, *, fingerprint: str, retry: bool) -> ChargeOutcome:
        if retry and not self.has_ledger:
            return Unsupported()
        content = Content(fingerprint, order.total.total_nanos)
        if key not in self.ledger and fingerprint in self.declined:
            if self.records_declines:
                self.ledger[key] = "DECLINED", content
            return REFUSED
        if key not in self.ledger or not self.has_ledger:
            self.ledger[key] = "CHARGED", content
            self.captured.append(key)
        state, charged = self.ledger[key]
        if charged not in {content, None}:
            return KeyReused()
        return UNCHARGED.get(state) or Charged(key)

    async def resolve(self, key: str, order: Order, *, fingerprint: str) -> ChargeOutcome:
        if not self.has_ledger:
            return Unsupported()
        if key not in self.ledger:
            self.ledger[key] = "FENCED", None
            return Fenced(existing=False)
        state, charged = self.ledger[key]
        is_own = charged == Content(fingerprint, order.total.total_nanos)
        return UNCHARGED.get(state) or (Charged(key) if is_own else KeyReused(key))

    async def void(self, key: str) -> VoidOutcome:
        if not self.has_ledger:
            return Unsupported()
        state, content = self.ledger.get(key, ("", None))
        if state == "CHARGED":
            self.ledger[key] = "VOIDED", content
            self.captured.remove(key)
        return Voided() if state in {"CHARGED", "VOIDED"} else REFUSED


@dataclass
class ShippingModel:
    """Ships once per key, and never under a fenced key; without a manifest, ships whenever it is called.

    Attributes:
        accepts: what is new.
        forgets: refuses even what it has shipped already.
        manifest: content by key, None for a fence.
    """

    accepts: bool = True
    has_manifest: bool = True
    forgets: bool = False
    manifest: dict[str, Content | None] = field(default_factory=dict)

    @property
    def shipped(self) -> dict[str, Content]:
        return {key: content for key, content in self.manifest.items() if content is not None}

    async def ship(self, key: str, order: Order, charged_at: float, *, retry: bool) -> ShipOutcome:
        if retry and not self.has_manifest:
            return Unsupported()
        while key in self.manifest and not self.has_manifest:
            key += " again"
        content = Content(order.address.street_address, sum(line.cost.total_nanos for line in order.lines))
        if self.manifest.get(key, content) is None:
            return Fenced(existing=True)
        if not self.accepts and (self.forgets or key not in self.manifest):
            return REFUSED
        same = self.manifest.setdefault(key, content) == content
        return Shipped(f"track-{key}") if same else KeyReused()

    async def resolve(self, key: str, charged_at: float) -> ShipOutcome:
        if not self.has_manifest:
            return Unsupported()
        if key in self.shipped:
            return Shipped(f"track-{key}")
        existing = key in self.manifest
        self.manifest[key] = None
        return Fenced(existing)
