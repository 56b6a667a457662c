"""Records figures in Locust's statistics, which Locust's page shows and workers send to the master."""

import time
from collections.abc import Iterator
from typing import Any

from locust.env import Environment
from locust.stats import RequestStats, StatsEntry, StatsError

from load_generator.pages import Page

# Statistics entries with these "methods" count sessions and orders. Locust's totals count only requests.
_SESSION = "session"
_ORDER = "order"

_PER_SECOND_HISTORY = 60
_CHART_POINTS = 720


class Figures:
    def __init__(self, environment: Environment) -> None:
        self._environment = environment
        self.start()

    @property
    def _stats(self) -> RequestStats:
        return self._environment.stats  # don't store this object, because a worker's runner replaces it

    def start(self) -> None:
        self._began = self._reported = time.monotonic()
        self._sessions_reported = self._requests_reported = 0

    def record_session(self, persona: str) -> None:
        self._count(_SESSION, persona)

    def record_dropped_session(self) -> None:
        self._stats.log_error(_SESSION, "arrival", "dropped: too many sessions in flight")

    def record_order(self, milliseconds: float) -> None:
        """Count an order. `milliseconds` is the time from the planned click until the customer saw the order's page."""
        self._stats.get("placed", _ORDER).log(round(milliseconds), 0)

    def record_repeat(self) -> None:
        self._count(_ORDER, "repeated")

    def record_failure(self, page: Page, reason: str) -> None:
        self._stats.log_error(page.method, page.name, reason)

    def live(self, in_flight: int) -> dict[str, Any]:
        """Return rates since the previous call, percentiles over the last ten seconds, and totals since the start."""
        total, now, sessions = self._stats.total, time.monotonic(), self._total(_SESSION)
        seconds = max(now - self._reported, 1e-3)
        rate = (sessions - self._sessions_reported) / seconds
        request_rate = (total.num_requests - self._requests_reported) / seconds
        self._reported, self._sessions_reported, self._requests_reported = now, sessions, total.num_requests
        return {
            "seconds": round(now - self._began, 1),
            "rate": round(rate, 1),
            "in_flight": in_flight,
            "requests_per_second": round(request_rate, 1),
            "p50_ms": _recent_percentile(total, 0.5),
            "p99_ms": _recent_percentile(total, 0.99),
            "orders": self._stats.get("placed", _ORDER).num_requests,
            "errors": sum(error.occurrences for error in self._failures()),
            "dropped": self._dropped(),
        }

    def summary(self) -> dict[str, Any]:
        seconds, sessions = time.monotonic() - self._began, self._total(_SESSION)
        orders = self._stats.get("placed", _ORDER)
        return {
            "seconds": round(seconds, 1),
            "sessions": sessions,
            "rate": round(sessions / seconds, 2),
            "personas": {entry.name: entry.num_requests for entry in self._entries(_SESSION) if entry.num_requests},
            "requests": self._stats.total.num_requests,
            "p50_ms": self._stats.total.get_response_time_percentile(0.5),
            "p99_ms": self._stats.total.get_response_time_percentile(0.99),
            "pages": self._pages(),
            "orders": orders.num_requests,
            "order_p99_ms": orders.get_response_time_percentile(0.99),
            "repeats": self._stats.get("repeated", _ORDER).num_requests,
            "dropped": self._dropped(),
            "errors": [
                {"page": f"{error.method} {error.name}", "reason": str(error.error), "count": error.occurrences}
                for error in self._failures()
            ],
        }

    def trim(self) -> None:
        """Delete old per-second counts and chart points, because Locust never does."""
        oldest = int(time.time()) - _PER_SECOND_HISTORY
        for entry in (*self._stats.entries.values(), self._stats.total):
            for counts in (entry.num_reqs_per_sec, entry.num_fail_per_sec):
                for second in [second for second in counts if second < oldest]:
                    del counts[second]
        del self._stats.history[:-_CHART_POINTS]

    def _count(self, kind: str, name: str) -> None:
        self._stats.get(name, kind).log(None, 0)  # type: ignore[arg-type]  # Locust accepts None

    def _entries(self, kind: str) -> Iterator[StatsEntry]:
        return (entry for entry in list(self._stats.entries.values()) if entry.method == kind)

    def _pages(self) -> list[dict[str, Any]]:
        entries = [entry for entry in self._stats.entries.values() if entry.method not in (_SESSION, _ORDER)]
        return [
            {
                "page": f"{entry.method} {entry.name}",
                "requests": entry.num_requests,
                "failures": entry.num_failures,
                "p50_ms": entry.get_response_time_percentile(0.5),
                "p99_ms": entry.get_response_time_percentile(0.99),
            }
            for entry in sorted(entries, key=lambda entry: (entry.name, entry.method))
        ]

    def _total(self, kind: str) -> int:
        return sum(entry.num_requests for entry in self._entries(kind))

    def _failures(self) -> list[StatsError]:
        return [error for error in self._stats.errors.values() if error.method != _SESSION]

    def _dropped(self) -> int:
        return sum(error.occurrences for error in self._stats.errors.values() if error.method == _SESSION)


def _recent_percentile(entry: StatsEntry, fraction: float) -> int:
    recent = entry.get_current_response_time_percentile(fraction)
    return entry.get_response_time_percentile(fraction) if recent is None else recent
