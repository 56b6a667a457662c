"""`python -m shop_lab.world.checkout_without_journal` runs checkout without a journal, to measure its cost.

Such a checkout loses orders in a crash and charges a card again on a retry.
"""

from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import asynccontextmanager
from functools import partial

from typing_extensions import override

from chassis.rpc.server import run
from chassis.telemetry.instruments import Telemetry
from chassis.values.paging import Position
from checkout_service.__main__ import Settings, build
from checkout_service.domain import State, Transition
from checkout_service.ports import Claim, Entry, Event, Journal, NewOrder, OutboxItem, Sent, Statistics


class NoJournal(Journal):
    """Stores nothing: every order is new and every update succeeds."""

    @override
    async def find(self, scope: str) -> Entry | None:
        return None

    @override
    async def find_of_cart(self, user_id: str, cart_etag: str) -> Entry | None:
        return None

    @override
    async def read(self, order_id: str) -> Entry | None:
        return None

    @override
    async def insert(self, new: NewOrder) -> Entry | None:
        return None

    @override
    async def take_over(self, seen: Entry) -> Entry | None:
        return None

    @override
    async def reopen(self, seen: Entry, new: NewOrder) -> Entry | None:
        return None

    @override
    async def claim_expired(self, state: State, limit: int, *, failed: bool) -> list[Entry]:
        return []

    @override
    async def update(self, claim: Claim, transition: Transition) -> bool:
        return True

    @override
    async def release(self, claim: Claim, *, delay_seconds: float, reason: str) -> None:
        pass

    @override
    async def release_own(self) -> None:
        pass

    @override
    async def claim_outbox(self, kind: str, limit: int, *, failed: bool) -> list[OutboxItem]:
        return []

    @override
    async def postpone(self, item: OutboxItem, *, delay_seconds: float, reason: str) -> None:
        pass

    @override
    async def set_dead(self, order_id: str, kind: str, *, reason: str) -> None:
        pass

    @override
    async def requeue(self, order_id: str) -> list[str]:
        return []

    @override
    async def settle(self, sent: Collection[Sent]) -> list[str]:
        return sorted({item.order_id for item in sent})

    @override
    async def settle_complete(self) -> list[str]:
        return []

    @override
    async def delete_old(self, *, older_than_seconds: float, limit: int) -> int:
        return 0

    @override
    async def statistics(self) -> Statistics:
        return Statistics({}, 0.0, 0)

    @override
    async def list_of_user(self, user_id: str, limit: int) -> list[Entry]:
        return []

    @override
    async def list_orders(self, states: Sequence[State], *, stuck: bool, limit: int) -> list[Entry]:
        return []

    @override
    async def scan(self, after: Position, limit: int) -> list[Entry]:
        return []

    @override
    async def outbox_of(self, order_ids: Sequence[str]) -> dict[str, list[str]]:
        return {order_id: [] for order_id in order_ids}

    @override
    async def dead_letters_of(self, order_ids: Sequence[str]) -> dict[str, list[str]]:
        return {order_id: [] for order_id in order_ids}

    @override
    async def history(self, order_id: str) -> list[Event]:
        return []

    @override
    async def check(self) -> None:
        pass


@asynccontextmanager
async def open_no_journal(_url: str, _telemetry: Telemetry, **_options: object) -> AsyncIterator[Journal]:
    """Open a NoJournal in place of checkout's `open_journal`."""
    yield NoJournal()


if __name__ == "__main__":
    run("checkout", Settings, partial(build, open_journal=open_no_journal))
