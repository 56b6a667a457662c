"""The interface between the spool's SQL and the databases that run it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol


class Row(Protocol):
    """A row whose values are read by column name."""

    def __getitem__(self, column: str, /) -> Any: ...


@dataclass(frozen=True, slots=True)
class Dialect:
    """How a database's SQL differs; see `statements`."""

    now: str
    skip_locked: str

    def render(self, text: str) -> str:
        """Return the SQL of one of the texts in `statements`."""
        return text.format(now=self.now, skip_locked=self.skip_locked)


class Database(Protocol):
    """Runs statements, each text rendered for its dialect once."""

    async def run(self, text: str, parameters: Mapping[str, Any]) -> Sequence[Row]:
        """Run a statement in a transaction; return its rows once they are on disk. Raise SpoolUnavailable."""

    async def run_each(self, text: str, parameters: Sequence[Mapping[str, Any]]) -> Sequence[Row]:
        """Run a statement with each of the parameters, in one transaction; return all rows, as `run` does."""
