"""A journal that keeps nothing, to measure what the journal costs. No order survives anything with it."""

from collections.abc import Collection, Sequence

from checkout_service.domain import State
from checkout_service.journal import Entry, Event, NewOrder, OutboxItem, Sent, Statistics
from checkout_service.saga import Update


class NoJournal:
    """See `journal.Journal`: every order is new, every update succeeds, nothing is found."""

    async def find(self, scope: str) -> Entry | None:
        """Find nothing."""
        return None

    async def find_recent(self, fingerprint: str) -> Entry | None:
        """Find nothing."""
        return None

    async def read(self, order_id: str) -> Entry | None:
        """Find nothing."""
        return None

    async def insert(self, new: NewOrder) -> Entry | None:
        """Accept any order."""
        return None

    async def take_over(self, seen: Entry) -> Entry | None:
        """Have nothing to take."""
        return None

    async def claim_expired(self, limit: int) -> list[Entry]:
        """Have nothing to recover."""
        return []

    async def update(self, order_id: str, epoch: int, change: Update, answer: bytes | None) -> bool:
        """Accept any change."""
        return True

    async def release(self, order_id: str, epoch: int, *, delay_seconds: float, reason: str) -> None:
        """Forget the order."""

    async def release_own(self) -> None:
        """Have nothing to release."""

    async def claim_outbox(self, limit: int) -> list[OutboxItem]:
        """Have nothing to send."""
        return []

    async def postpone(self, item: OutboxItem, *, delay_seconds: float, reason: str) -> None:
        """Forget the item."""

    async def settle(self, sent: Collection[Sent]) -> list[str]:
        """Call every order done."""
        return sorted({item.order_id for item in sent})

    async def statistics(self) -> Statistics:
        """Count nothing."""
        return Statistics({}, 0.0, 0)

    async def list_orders(self, states: Sequence[State], *, stuck: bool, limit: int) -> list[Entry]:
        """List nothing."""
        return []

    async def outbox_of(self, order_ids: Sequence[str]) -> dict[str, list[str]]:
        """Find nothing."""
        return {order_id: [] for order_id in order_ids}

    async def history(self, order_id: str) -> list[Event]:
        """Find nothing."""
        return []

    async def check(self) -> None:
        """Always answer."""
