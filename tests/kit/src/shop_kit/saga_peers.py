"""Models of payment and shipping that follow the contract."""

from dataclasses import dataclass, field
from typing import Any

from checkout_service import commands
from checkout_service.commands import Charged, Fenced, KeyReused, Refused, Released, Shipped, Unsupported
from checkout_service.domain import Refusal

PEER_COMMANDS = (commands.Charge, commands.Resolve, commands.Void, commands.Ship, commands.ResolveShipment)
REFUSAL = Refusal("FailedPrecondition", "NO", "no")


@dataclass(frozen=True, slots=True)
class Content:
    """What a charge or a shipment is for."""

    request: str
    price: int


@dataclass
class Payment:
    """Charges once per key, and never under a fenced key.

    Attributes:
        declined: requests whose card is declined.
        records_declines: otherwise a declined card is like a malformed one.
        ledger: state and content by key.
        captured: keys of charges, one for each time that a card was charged and not released.
    """

    declined: frozenset[str] = frozenset()
    records_declines: bool = True
    has_ledger: bool = True
    ledger: dict[str, tuple[str, Content | None]] = field(default_factory=dict)
    captured: list[str] = field(default_factory=list)

    def charge(self, key: str, content: Content) -> Any:
        entry = self.ledger.get(key)
        if entry is None and content.request in self.declined:
            if self.records_declines:
                self.ledger[key] = "DECLINED", content
            return Refused(REFUSAL)
        if entry is None:
            entry = self.ledger[key] = "CHARGED", content
            self.captured.append(key)
        state, charged = entry
        if state == "FENCED":
            return Fenced(existing=True)
        if charged != content:
            return KeyReused()
        return {"CHARGED": Charged(key), "DECLINED": Refused(REFUSAL), "VOIDED": Released()}[state]

    def resolve(self, key: str, content: Content) -> Any:
        if not self.has_ledger:
            return Unsupported()
        existing = key in self.ledger
        state, charged = self.ledger.get(key, ("FENCED", None))
        self.ledger.setdefault(key, ("FENCED", None))
        if state == "CHARGED":
            return Charged(key) if charged == content else KeyReused(key)
        return {"FENCED": Fenced(existing), "DECLINED": Refused(REFUSAL), "VOIDED": Released()}[state]

    def void(self, key: str) -> Any:
        if not self.has_ledger:
            return Unsupported()
        state, content = self.ledger.get(key, ("", None))
        if state == "CHARGED":
            self.ledger[key] = "VOIDED", content
            self.captured.remove(key)
        return Released() if state in {"CHARGED", "VOIDED"} else Refused(REFUSAL)


@dataclass
class Shipping:
    """Ships once per key, and never under a fenced key.

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

    def ship(self, key: str, content: Content) -> Any:
        if self.manifest.get(key, content) is None:
            return Fenced(existing=True)
        if not self.accepts and (self.forgets or key not in self.manifest):
            return Refused(REFUSAL)
        same = self.manifest.setdefault(key, content) == content
        return Shipped(f"track-{key}") if same else KeyReused()

    def resolve(self, key: str) -> Any:
        if not self.has_manifest:
            return Unsupported()
        if key in self.shipped:
            return Shipped(f"track-{key}")
        existing = key in self.manifest
        self.manifest[key] = None
        return Fenced(existing)
