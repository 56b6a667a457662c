"""Limits orders, cards and declines per session, network and mailbox. Each replica counts in its own memory."""

import hashlib
import secrets
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

import structlog

from chassis.errors import DomainError, ResourceExhausted
from chassis.telemetry import semconv
from chassis.telemetry.instruments import Telemetry
from chassis.values.networks import public_network

log = structlog.get_logger()

LIMITS = {
    "orders_per_session": "You placed many orders",
    "orders_per_network": "Many orders came from your network",
    "declines_per_session": "Several cards were declined",
    "declines_per_network": "Many cards from your network were declined",
    "declines_without_network": "Many cards were declined",
    "cards_per_session": "You used many cards",
    "cards_per_network": "Many cards were used in your network",
    "letters_per_recipient": "Many orders named this e-mail address",
}
"""Maps the name of each limit to the text that customers see when they reach it. Logs and metrics use the name."""

_MAX_KEYS = 100_000
_HOUR_SECONDS = 3600.0


class LimitReached(ResourceExhausted):
    """The visitor has placed too many orders, tried too many cards, or had too many declined. No order was placed."""


class OrderLimits:
    """Allows a number of events per hour for each key, in a burst or spread out (generic cell rate algorithm).

    A key is a limit's name plus the session, network or mailbox that the limit applies to. Each key is stored with the
    time at which its full allowance is available again. Beyond 100,000 keys, the least recently counted one is dropped.
    """

    def __init__(
        self, per_hour: Mapping[str, int], telemetry: Telemetry, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._shares = {name: _HOUR_SECONDS / count for name, count in per_hour.items()}
        self._clock = clock
        self._full_at: dict[tuple[str, ...], float] = {}
        self._secret = secrets.token_bytes(16)  # the key for hashing card numbers
        self._refusals = telemetry.counter(semconv.HTTP_REFUSALS)
        for name in per_hour:  # export zeros from the start: alerts notice increases only in existing series
            self._refusals.add(0, ((semconv.HTTP_REFUSAL_REASON, name),))

    @contextmanager
    def order(self, user_id: str, address: str, email: str, card: str = "") -> Iterator[Callable[[], None]]:
        """Raise LimitReached if a limit is reached. Otherwise, run the `with` block and count its order.

        The order doesn't count if the block raises DomainError or calls the yielded function. A declined card still
        counts as a decline, and each card counts once an hour whether or not the order succeeds. Network limits don't
        apply to private addresses, which may belong to a proxy that all customers share. Instead, all declined cards
        from private addresses count toward a single limit.
        """
        by = {"session": user_id, "network": public_network(address)}
        orders, declines, cards = (
            [(f"{counted}_per_{name}", key) for name, key in by.items() if key]
            for counted in ("orders", "declines", "cards")
        )
        orders.append(("letters_per_recipient", _mailbox(email)))
        without_network = [] if by["network"] else [("declines_without_network", "")]
        card_hash = hashlib.blake2b(card.encode(), digest_size=16, key=self._secret).hexdigest()
        seen = {key: (*key, card_hash) for key in cards}
        cards = [key for key in cards if self._full_at.get(seen[key], 0.0) <= self._clock()]
        self._check([*orders, *declines, *without_network, *cards])
        # Count before ordering, or concurrent orders would all pass the check.
        self._count([*orders, *declines, *cards])
        for key in seen.values():
            self._set(key, self._clock() + _HOUR_SECONDS)
        try:
            yield lambda: self._count(orders, -1)
        except DomainError as error:
            self._count(orders, -1)
            if error.reason.startswith(("CARD_", "BRAND_")):
                self._count(without_network)
            else:
                self._count(declines, -1)
            raise
        self._count(declines, -1)

    def _check(self, keys: Sequence[tuple[str, str]]) -> None:
        now = self._clock()
        wait, name = max((self._full_at.get(key, now) - now + self._shares[key[0]], key[0]) for key in keys)
        if wait > _HOUR_SECONDS:
            self._refusals.add(1, ((semconv.HTTP_REFUSAL_REASON, name),))
            log.warning("request refused", reason=name)
            raise LimitReached(LIMITS[name], retry_after_seconds=wait - _HOUR_SECONDS)

    def _count(self, keys: Sequence[tuple[str, str]], events: int = 1) -> None:
        now = self._clock()
        for key in keys:
            self._set(key, max(self._full_at.get(key, now), now) + events * self._shares[key[0]])

    def _set(self, key: tuple[str, ...], full_at: float) -> None:
        self._full_at.pop(key, None)  # so that the key moves to the end of the dictionary
        self._full_at[key] = full_at
        oldest = next(iter(self._full_at))
        if len(self._full_at) > _MAX_KEYS or self._full_at[oldest] <= self._clock():
            del self._full_at[oldest]


def _mailbox(email: str) -> str:
    """Return the same key for all addresses of a mailbox: most providers ignore dots and anything after a plus sign."""
    local, _, domain = email.lower().rpartition("@")
    return f"{local.partition('+')[0].replace('.', '')}@{domain}"
