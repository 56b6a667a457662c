"""The interface between the journal's SQL and the databases that run it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

from checkout_service.journal.statements import FRAGMENTS

Parameters: TypeAlias = Mapping[str, Any]
Statement: TypeAlias = tuple[str, Parameters]
"""One of the texts in `statements`, and values for its parameters by name; it ignores other values."""


class Row(Protocol):
    """A row whose values are read by column name."""

    def __getitem__(self, column: str, /) -> Any: ...


@dataclass(frozen=True, slots=True)
class Dialect:
    """How a database's SQL differs; see `statements` for the meaning of its fragments."""

    now: str
    for_update: str
    skip_locked: str
    items: str
    listed: str
    written: str
    of_claim: str
    of_items: str
    locked: str

    def render(self, text: str) -> str:
        """Return the SQL of one of the texts in `statements`."""
        fields = {
            "now": self.now,
            "for_update": self.for_update,
            "skip_locked": self.skip_locked,
            "items": self.items,
            "listed": self.listed.format(items=self.items),
        }
        for name, fragment in FRAGMENTS.items():
            fields[name] = fragment.format(**fields)
        fields |= {
            "written": self.written,
            "of_claim": self.of_claim.format(**fields),
            "of_items": self.of_items.format(**fields),
            "locked": self.locked.format(**fields),
        }
        return text.format(**fields)


class UniqueViolation(Exception):
    """A concurrent transaction has written a row with the same unique values; nothing was written."""


class Database(Protocol):
    """Runs statements, each text rendered for its dialect once. All methods raise JournalUnavailable."""

    async def write(self, *batch: Statement) -> Sequence[Sequence[Row]]:
        """Run statements in one transaction. Return the rows of each as soon as they are on disk.

        Raises UniqueViolation, also JournalUnavailable.
        """

    async def write_order(self, *batch: Statement) -> Sequence[Sequence[Row]]:
        """Do what `write` does, for a statement that writes one order and returns its row, and those that depend on it.

        They may run on the event loop, or in one transaction with those of other orders.
        """
        return await self.write(*batch)

    async def read(self, text: str, parameters: Parameters) -> Sequence[Row]:
        """Run a query that an index answers: it may run on the event loop."""

    async def report(self, text: str, parameters: Parameters) -> Sequence[Row]:
        """Run a query of operators, which may take long: it does not delay `read`."""
        return await self.read(text, parameters)
