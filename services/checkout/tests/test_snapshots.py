"""The column `snapshot` of the table `orders`: versioned, so that rows of other releases are recognized."""

import json
from collections.abc import Callable

import pytest

from checkout_service.domain import State
from checkout_service.journal import snapshots
from checkout_service.journal.sql import Journal
from shop_kit.checkouts import Start
from shop_kit.databases import execute
from shop_kit.orders import new_order


async def test_a_new_row_holds_a_versioned_snapshot(start: Start, database_url: str) -> None:
    async with start() as checkout:
        await checkout.place()
    ((snapshot,),) = execute(database_url, "SELECT snapshot FROM orders")
    assert json.loads(snapshot)["version"] == snapshots.VERSION


def test_a_snapshot_of_an_unknown_version_is_rejected() -> None:
    snapshot = snapshots.dump(new_order().order).replace(b'"version":2', b'"version":3')
    with pytest.raises(ValueError, match="unknown version 3"):
        snapshots.load({"order_id": "id", "snapshot": snapshot})


async def test_an_unreadable_order_does_not_block_others(journal: Journal, run_sql: Callable[[str], object]) -> None:
    """As after a rollback from a release with another version."""
    for scope in ("readable", "unreadable"):
        await journal.insert(new_order(scope))
    run_sql("UPDATE orders SET lease_until = 0")
    run_sql("UPDATE orders SET snapshot = '{\"version\":3}' WHERE cart_etag = 'etag of unreadable'")
    claimed = await journal.claim_expired(State.CHARGING, 10, failed=False)
    listed = await journal.list_orders([], stuck=False, limit=10)
    assert [entry.scope for entry in claimed] == [entry.scope for entry in listed] == ["readable"]
