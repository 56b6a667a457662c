import math
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

from chassis.errors import InvalidArgument
from chassis.values.fields import limit_count, limit_text

PAGE_SIZE = 1_000
MAX_SECONDS = 253_402_300_799  # the end of the year 9999, the latest time that databases can store
_MAX_TOKEN_LENGTH = 512


@dataclass(frozen=True, slots=True, order=True)
class Position:
    """A position in a list that is ordered by time and key: right after any entry with this time and key."""

    at: float  # Unix time
    key: str = ""


class Entry(Protocol):
    @property
    def position(self) -> Position: ...


EntryT = TypeVar("EntryT", bound=Entry)


@dataclass(frozen=True)
class KeyedEntry:
    """A store's record for an idempotency key.

    Attributes:
        recorded_at: when the entry was stored, in seconds since 1970; 0 if this call stored it.
        recorded_id: the stored transaction or tracking id; set only on the entries that list methods return.
    """

    key: str
    recorded_at: float = field(default=0.0, compare=False, kw_only=True)
    recorded_id: str = field(default="", compare=False, kw_only=True)

    @property
    def existing(self) -> bool:
        """Whether the entry was stored before this write, perhaps by an earlier attempt at the same call."""
        return bool(self.recorded_at)

    @property
    def position(self) -> Position:
        return Position(self.recorded_at, self.key)


def is_time(value: object) -> bool:
    """Return whether a value is a time, in seconds since 1970, that databases can store."""
    return isinstance(value, int | float) and 0 <= value <= MAX_SECONDS


async def read_page(
    request: Any,
    since: float,
    scan: Callable[[Position, int], Awaitable[Sequence[EntryT]]],
    find: Callable[[Sequence[str]], Awaitable[Sequence[EntryT]]],
) -> tuple[Sequence[EntryT], str]:
    """Return the page that a request with `order_ids` and `page_token` asks for, and the next page's token.

    If the request has order ids, `find` returns the only page. Otherwise, `scan(position, limit)` returns up to `limit`
    entries after a position.
    """
    if request.order_ids:
        limit_count(request.order_ids, "order_ids", max_count=PAGE_SIZE)
        return await find(request.order_ids), ""
    page = await scan(_parse_position(since, request.page_token), PAGE_SIZE)
    if not page:  # the list ends with an empty page
        return page, ""
    end = page[-1].position
    # repr keeps all digits. If the time were rounded, pages would skip or repeat entries.
    return page, f"{end.at!r} {end.key}"


def _parse_position(since: float, page_token: str) -> Position:
    """Return where a page begins: at the token's position or, without a token, at the Unix time `since`."""
    if not page_token:
        return Position(since)
    limit_text(page_token, "page_token", max_length=_MAX_TOKEN_LENGTH)
    at, _, key = page_token.partition(" ")
    try:
        seconds = float(at)
    except ValueError:
        seconds = math.nan  # NaN fails the range check below
    if not 0 <= seconds <= MAX_SECONDS:
        raise InvalidArgument.field("page_token", "must be the next_page_token of a response")
    return Position(seconds, key)
