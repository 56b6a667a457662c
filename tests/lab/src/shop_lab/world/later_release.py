"""A later release of checkout, emulated: it has the next protocol number, with which a column means something else.

It also sends no purchase id, so that only the journal keeps two releases from selling a cart twice.
"""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Any
from unittest import mock

from typing_extensions import override

from chassis.background import log_errors
from chassis.rpc.server import run
from chassis.sql.database import Database, Statement
from checkout_service.__main__ import Settings, build
from checkout_service.domain import Order
from checkout_service.journal import opening, statements
from checkout_service.journal.sql import PROTOCOL, Journal

_NUMBER = "(SELECT number FROM protocol) = :protocol"
_CART = "CAST(:cart_etag AS TEXT)"
_WRITTEN = f"CASE WHEN {_NUMBER} THEN upper({_CART}) ELSE {_CART} END"
_CONVERT = f"UPDATE orders SET cart_etag = upper(cart_etag) WHERE cart_etag <> upper(cart_etag) AND {_NUMBER}"  # noqa: S608


class LaterJournal(Journal):
    """Stores the generations of carts in capital letters, once the journal has this release's protocol number."""

    def __init__(self, database: Database, worker: str, lease_seconds: float) -> None:
        super().__init__(database, worker, lease_seconds, protocol=PROTOCOL + 1)

    @override
    async def announce(self) -> None:
        texts = (statements.ANNOUNCE, statements.FORGET_REPLICAS, statements.RAISE_PROTOCOL, _CONVERT)
        await self._database.write(*(self._statement(text) for text in texts))

    @override
    def _statement(self, text: str, items: Sequence[object] | None = None, **values: Any) -> Statement:
        text = text.replace(":cart_etag", _WRITTEN).replace("cart_etag, state", "lower(cart_etag) AS cart_etag, state")
        return super()._statement(text, items, **values)


@asynccontextmanager
async def _open_journal(*arguments: Any, **options: Any) -> AsyncIterator[Journal]:
    async with opening.open_journal(*arguments, **options) as journal:
        # Before the first order: the number must not rise while one is being recorded.
        await log_errors(journal.announce(), "this replica cannot announce itself")
        yield journal


if __name__ == "__main__":
    with mock.patch.object(opening, "Journal", LaterJournal), mock.patch.object(Order, "purchase_id", ""):
        run("checkout", Settings, partial(build, open_journal=_open_journal), migrations=opening.MIGRATIONS)
