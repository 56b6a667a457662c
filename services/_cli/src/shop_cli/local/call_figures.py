"""Call rates, error rates and durations over the last minute, by service and by caller-callee pair."""

import math
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from chassis.telemetry import semconv
from shop_cli.local.spans import Span

WINDOW_SECONDS, SLICE_SECONDS = 60, 5
# Ignore the most recent seconds, because services may not have exported all their spans yet.
EXPORT_SECONDS = 2
# Each duration bucket is 5 % wider than the previous one, so percentiles are accurate to 5 %.
_GROWTH = math.log(1.05)
# Maps a span's `db.system.name` to the store's name. SQLite isn't listed, because it runs in the calling process.
_STORES = {"postgresql": "postgres", "redis": "valkey"}

_Counts = Counter[tuple[int, bool]]
"""The number of calls, by duration bucket and by whether they failed."""
_Seconds = dict[int, _Counts]


@dataclass(frozen=True)
class Figures:
    """Figures for the last minute's calls. `rates` and `p99s` hold one value for every five seconds, oldest first."""

    rate: float = 0.0
    error_rate: float = 0.0
    p50_milliseconds: float = 0.0
    p99_milliseconds: float = 0.0
    rates: tuple[float, ...] = ()
    p99s: tuple[float, ...] = ()


class CallFigures:
    """Counts the spans of the last two minutes by the second in which they ended."""

    def __init__(self) -> None:
        self._served: defaultdict[str, _Seconds] = defaultdict(dict)
        # Each key is a calling service and the method or database system that it called.
        self._made: defaultdict[tuple[str, str], _Seconds] = defaultdict(dict)
        # Maps each method to the service that serves it, learned from server spans. Entries remain if a service stops.
        self._callees = dict(_STORES)

    def count(self, span: Span) -> None:
        if span.kind == "SERVER":
            self._callees[span.name] = span.service
            _count(self._served[span.service], span)
        elif span.kind == "CLIENT":
            system = str(span.attributes.get(semconv.DB_SYSTEM, ""))
            _count(self._made[span.service, system or span.name], span)
            if system in _STORES:
                _count(self._served[_STORES[system]], span)

    def of_service(self, name: str, now: float) -> Figures:
        """Return figures for a service, or for a store as measured by its clients. `now` is a Unix timestamp."""
        return _figures([self._served[name]], now)

    def of_calls(self, now: float) -> dict[tuple[str, str], Figures]:
        """Return figures by caller and callee, including pairs without a call in the last minute."""
        calls: defaultdict[tuple[str, str], list[_Seconds]] = defaultdict(list)
        for (caller, name), seconds in self._made.items():
            if name in self._callees:
                calls[caller, self._callees[name]].append(seconds)
        return {names: _figures(seconds, now) for names, seconds in sorted(calls.items())}


def _count(seconds: _Seconds, span: Span) -> None:
    now = span.ended_nanos // 10**9
    if now not in seconds:
        for old in [second for second in seconds if second <= now - 2 * WINDOW_SECONDS]:
            del seconds[old]
    bucket = round(math.log(max(span.milliseconds, 0.001)) / _GROWTH)
    seconds.setdefault(now, Counter())[bucket, span.failed] += 1


def _figures(counted: Iterable[_Seconds], now: float) -> Figures:
    slices = [_Counts() for _ in range(WINDOW_SECONDS // SLICE_SECONDS)]
    for seconds in counted:
        for second, counts in seconds.items():
            if 0 <= (age := int(now) - EXPORT_SECONDS - second) < WINDOW_SECONDS:
                slices[-1 - age // SLICE_SECONDS].update(counts)
    total = sum(slices, _Counts())
    if not total:
        return Figures()
    errors = sum(count for (_, failed), count in total.items() if failed)
    rates = tuple(part.total() / SLICE_SECONDS for part in slices)
    p99s = tuple(_percentile(part, 0.99) for part in slices)
    rate, error_rate = total.total() / WINDOW_SECONDS, errors / WINDOW_SECONDS
    return Figures(rate, error_rate, _percentile(total, 0.5), _percentile(total, 0.99), rates, p99s)


def _percentile(counts: _Counts, share: float) -> float:
    """Return a percentile of call durations in milliseconds (`share` 0.99 is the p99); 0 if there were no calls."""
    left = share * counts.total()
    for (bucket, _), count in sorted(counts.items()):
        left -= count
        if left <= 0:
            return math.exp(bucket * _GROWTH)
    return 0.0
