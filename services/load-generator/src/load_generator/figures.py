"""Records figures in Locust's statistics, which Locust's web UI shows and workers send to the master."""

import time
from typing import Any

from locust.env import Environment
from locust.stats import RequestStats, StatsEntry

from load_generator.pages import Page

# Pseudo-methods of the statistics entries that count sessions and orders. Locust's totals count only requests.
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
        self._counts = (0, 0)  # the session and request counts that `live` last reported

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
        total, now, summary = self._stats.total, time.monotonic(), self.summary()
        seconds, counts = max(now - self._reported, 1e-3), (summary["sessions"], summary["requests"])
        rate, request_rate = ((count - old) / seconds for count, old in zip(counts, self._counts, strict=True))
        self._reported, self._counts = now, counts
        return {
            "seconds": summary["seconds"],
            "rate": round(rate, 1),
            "in_flight": in_flight,
            "requests_per_second": round(request_rate, 1),
            "p50_ms": _recent_percentile(total, 0.5),
            "p99_ms": _recent_percentile(total, 0.99),
            "orders": summary["orders"],
            "errors": sum(error["count"] for error in summary["errors"]),
            "dropped": summary["dropped"],
        }

    def summary(self) -> dict[str, Any]:
        seconds, orders = time.monotonic() - self._began, self._stats.get("placed", _ORDER)
        entries, errors = list(self._stats.entries.values()), list(self._stats.errors.values())
        personas = {each.name: each.num_requests for each in entries if each.method == _SESSION and each.num_requests}
        sessions = sum(personas.values())
        pages = [entry for entry in entries if entry.method not in (_SESSION, _ORDER)]
        return {
            "seconds": round(seconds, 1),
            "sessions": sessions,
            "rate": round(sessions / seconds, 2),
            "personas": personas,
            "requests": self._stats.total.num_requests,
            "p50_ms": self._stats.total.get_response_time_percentile(0.5),
            "p99_ms": self._stats.total.get_response_time_percentile(0.99),
            "pages": [
                {
                    "page": f"{entry.method} {entry.name}",
                    "requests": entry.num_requests,
                    "failures": entry.num_failures,
                    "p50_ms": entry.get_response_time_percentile(0.5),
                    "p99_ms": entry.get_response_time_percentile(0.99),
                }
                for entry in sorted(pages, key=lambda entry: (entry.name, entry.method))
            ],
            "orders": orders.num_requests,
            "order_p99_ms": orders.get_response_time_percentile(0.99),
            "repeats": self._stats.get("repeated", _ORDER).num_requests,
            "dropped": sum(error.occurrences for error in errors if error.method == _SESSION),
            "errors": [
                {"page": f"{error.method} {error.name}", "reason": str(error.error), "count": error.occurrences}
                for error in errors
                if error.method != _SESSION
            ],
        }

    def trim(self) -> None:
        """Delete old per-second counts and chart points, because Locust never deletes them."""
        oldest = int(time.time()) - _PER_SECOND_HISTORY
        for entry in (*self._stats.entries.values(), self._stats.total):
            for counts in (entry.num_reqs_per_sec, entry.num_fail_per_sec):
                for second in [second for second in counts if second < oldest]:
                    del counts[second]
        del self._stats.history[:-_CHART_POINTS]

    def _count(self, kind: str, name: str) -> None:
        self._stats.get(name, kind).log(None, 0)  # type: ignore[arg-type]  # Locust accepts None


def _recent_percentile(entry: StatsEntry, fraction: float) -> int:
    recent = entry.get_current_response_time_percentile(fraction)
    return entry.get_response_time_percentile(fraction) if recent is None else recent
