"""Limits on orders, declined cards and confirmations, by session, network and mailbox.

Each replica counts in its own memory. Time is monotonic: a changed clock neither opens nor closes a limit.
"""

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

import structlog

from chassis.errors import DomainError, ResourceExhausted
from chassis.telemetry import semconv
from chassis.telemetry.instruments import Telemetry
from chassis.values.networks import public_network

log = structlog.get_logger()

_MAX_KEYS = 20_000
_HOUR_SECONDS = 3600.0

LIMITS = {
    "orders_per_session": "You placed many orders",
    "orders_per_network": "Many orders came from your network",
    "declines_per_session": "Several cards were declined",
    "declines_per_network": "Many cards from your network were declined",
    "letters_per_recipient": "Many orders named this e-mail address",
}
"""Names of the settings, which are the reasons of refusals, and what customers read."""


class LimitReached(ResourceExhausted):
    """There were too many orders, declined cards or confirmations; nothing was done."""


@dataclass(frozen=True)
class RateLimit:
    """Allows a number of events an hour for each key, at once or spread (generic cell rate algorithm).

    A key's state is the time at which all of its allowance is back. Beyond 20,000 keys the one that was counted least
    recently is forgotten.
    """

    per_hour: int
    clock: Callable[[], float]
    _full_at: dict[str, float] = field(default_factory=dict)

    def wait_seconds(self, key: str) -> float:
        """Return how long until the next event is allowed, 0 or less if it is now."""
        now = self.clock()
        return max(self._full_at.get(key, now) - now, 0) + _HOUR_SECONDS / self.per_hour - _HOUR_SECONDS

    def count(self, key: str, events: int = 1) -> None:
        now = self.clock()
        self._full_at[key] = max(self._full_at.pop(key, now), now) + events * _HOUR_SECONDS / self.per_hour
        oldest = next(iter(self._full_at))
        if len(self._full_at) > _MAX_KEYS or self._full_at[oldest] <= now:
            del self._full_at[oldest]


class OrderLimits:
    """The limits, by the names of their settings."""

    def __init__(
        self, per_hour: Mapping[str, int], telemetry: Telemetry, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._limits = {name: RateLimit(count, clock) for name, count in per_hour.items()}
        self._refusals = telemetry.counter(semconv.HTTP_REFUSALS)

    @contextmanager
    def order(self, user_id: str, address: str, email: str) -> Iterator[Callable[[], None]]:
        """Count an order while it is placed, unless it fails or the yielded function is called; and a declined card.

        Raise LimitReached before that.
        """
        session, network = {"session": user_id}, {"network": public_network(address)}
        orders = _keys("orders", {**session, **network}) | {"letters_per_recipient": _mailbox(email)}
        declines = _keys("declines", {**session, **network})
        self._check({**orders, **declines})

        # Counted before, or concurrent orders would all be within the limit.
        self._count(orders)
        try:
            yield lambda: self._count(orders, -1)
        except DomainError as error:
            self._count(orders, -1)
            if _is_declined_card(error):
                self._count(declines)
            raise

    def _check(self, keys: Mapping[str, str]) -> None:
        waits = {name: self._limits[name].wait_seconds(key) for name, key in keys.items()}
        name = max(waits, key=lambda limit: waits[limit])
        if waits[name] > 0:
            self._refusals.add(1, ((semconv.HTTP_REFUSAL_REASON, name),))
            log.warning("request refused", reason=name)
            raise LimitReached(LIMITS[name], retry_after_seconds=waits[name])

    def _count(self, keys: Mapping[str, str], events: int = 1) -> None:
        for name, key in keys.items():
            self._limits[name].count(key, events)


def _keys(kind: str, by: Mapping[str, str | None]) -> dict[str, str]:
    """Return the keys by limit. Addresses that are not on the Internet may be a proxy's, which all customers share."""
    return {f"{kind}_per_{name}": key for name, key in by.items() if key is not None}


def _mailbox(email: str) -> str:
    """Return what many addresses share: most providers ignore dots and what follows a plus sign."""
    local, _, domain = email.lower().rpartition("@")
    return f"{local.partition('+')[0].replace('.', '')}@{domain}"


def _is_declined_card(error: DomainError) -> bool:
    fields = [violation.field for violation in getattr(error, "violations", ())]
    return error.reason.startswith(("CARD_", "BRAND_")) or any("credit_card" in name for name in fields)
