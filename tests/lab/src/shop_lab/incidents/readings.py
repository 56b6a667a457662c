"""What an incident is judged by: Prometheus and Alertmanager of a release, its records and its objects."""

import math
from collections.abc import Callable, Mapping, Sequence

import httpx2

from chassis.errors import FailedPrecondition, Unavailable
from shop_lab.incidents.alerts import AlertRecorder
from shop_lab.incidents.catalogue import Effect, Fault
from shop_lab.incidents.record import Firing

_PAGES = 'rate(http_server_request_duration_seconds_count{$in,service_name="storefront"}[1m])'
_FAILED = _PAGES.replace('"}', '",http_response_status_code=~"5.."}')
_FAILED_SHARE = f"(sum({_FAILED}) or vector(0)) / sum({_PAGES})"
_BURNT = "max by (slo) (slo:errors:ratio_rate1h{$in} / on (slo, objective) (1 - slo:objective:ratio{$in})) > 1"


class QueryRefused(FailedPrecondition):
    """Prometheus does not accept a query."""


class Readings:
    """A release with observability. Methods raise Unavailable while their source does not answer.

    Args:
        prometheus: a client with its base URL.
        namespace: of the release.
        alerts: a recorder that was started.
        compare: compare the records now, and return the kinds of mismatches; raise Unavailable.
        objects: return the texts of the namespace's objects and logs.
    """

    def __init__(
        self,
        prometheus: httpx2.Client,
        namespace: str,
        alerts: AlertRecorder,
        compare: Callable[[], Sequence[str]],
        objects: Callable[[], Mapping[str, str]],
    ) -> None:
        self._prometheus = prometheus
        self._namespace = namespace
        self._alerts = alerts
        self._compare = compare
        self._objects = objects

    def effect(self, effect: Effect) -> float | None:
        """Return the value of an effect now, the furthest of several; None if there is none."""
        values = [value for _, value in self._query(effect.query)]
        return (min if effect.above is None else max)(values, default=None)

    def value_of(self, fault: Fault) -> float | None:
        """Return the value of a fault's effect now; None if it has none, or nothing says."""
        try:
            return self.effect(fault.effect) if fault.effect else None
        except Unavailable:  # a fault may reach what observes it
            return None

    def failed_share(self) -> float | None:
        """Return the share of pages that failed in the last minute; None if there were none, or if it is unknown."""
        try:
            return next((value for _, value in self._query(_FAILED_SHARE)), None)
        except Unavailable:  # as above
            return None

    def mismatches(self) -> frozenset[str]:
        """Compare the records of orders, which may take a minute. Return the kinds of those that disagree."""
        return frozenset(self._compare())

    def firings(self, since: float) -> Sequence[Firing]:
        """Return the alerts that fired at or after a time in seconds since 1970."""
        return self._alerts.since(since)

    def burnt(self) -> frozenset[str]:
        """Return the alerts of error budgets that burnt within the last hour: a single error may make them fire."""
        return frozenset(f"ErrorBudgetBurn({labels['slo']})" for labels, _ in self._query(_BURNT))

    def visible(self) -> Mapping[str, str]:
        """Return what investigators may read besides telemetry, by where it is: logs and objects."""
        return self._objects()

    def _query(self, query: str) -> list[tuple[Mapping[str, str], float]]:
        """Return the labels and values of all series that are numbers."""
        matched = query.replace("$in", f'k8s_namespace_name="{self._namespace}"')
        try:
            response = self._prometheus.get("/api/v1/query", params={"query": matched})
        except httpx2.TransportError as error:
            raise Unavailable(f"Prometheus does not answer at {self._prometheus.base_url}") from error
        if response.is_error:
            raise QueryRefused(f"Prometheus refuses {matched!r}: {response.status_code}")
        values = [(series["metric"], float(series["value"][1])) for series in response.json()["data"]["result"]]
        return [(labels, value) for labels, value in values if not math.isnan(value)]
