"""What an incident is judged by: Prometheus and Alertmanager of a release, or what `shop up` serves."""

import http.client
import json
import math
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, cast
from urllib.parse import urlencode

from chassis.errors import FailedPrecondition, Unavailable
from shop_cli import control_room_client
from shop_cli.local.run_file import DATA
from shop_cli.local.workspace import UnknownService
from shop_lab.incidents.alerts import AlertRecorder, Firing
from shop_lab.incidents.catalogue import Bounds, Effect, Fault
from shop_lab.incidents.local import environments

_TIMEOUT_SECONDS = 10
_PAGES = 'rate(http_server_request_duration_seconds_count{$in,service_name="storefront"}[1m])'
_FAILED = _PAGES.replace('"}', '",http_response_status_code=~"5.."}')
_FAILED_SHARE = f"(sum({_FAILED}) or vector(0)) / sum({_PAGES})"
_BURNT = "max by (slo) (slo:errors:ratio_rate1h{$in} / on (slo, objective) (1 - slo:objective:ratio{$in})) > 1"


class QueryRefused(FailedPrecondition):
    """Prometheus does not accept a query."""


class Readings(Protocol):
    """A shop, as an incident sees it. Methods raise Unavailable while their source does not answer."""

    def effect(self, effect: Effect) -> float | None:
        """Return the value of an effect now; None if there is none."""

    def bounds(self, effect: Effect) -> Bounds:
        """Return the bounds of that value."""

    def value_of(self, fault: Fault) -> float | None:
        """Return the value of a fault's effect now; None if it has none, or nothing says."""
        try:
            return self.effect(fault.effect) if fault.effect else None
        except Unavailable:  # a fault may reach what observes it
            return None

    def shows(self, fault: Fault, value: float | None) -> bool:
        """Return whether a value is one of a shop with the fault."""
        return fault.effect is not None and self.bounds(fault.effect).contain(value)

    def failed_share(self) -> float | None:
        """Return the share of customers' pages that failed in the last minute; None without customers."""

    def mismatches(self) -> Mapping[str, int] | None:
        """Compare the records of orders, which may take a minute. Return how many disagree, by kind; None if unread."""

    def firings(self, since: float) -> Sequence[Firing]:
        """Return the alerts that fired at or after a time in seconds since 1970."""

    def burnt(self) -> frozenset[str]:
        """Return the alerts of error budgets that burnt within the last hour: a single error may make them fire."""
        return frozenset()

    def visible(self) -> Mapping[str, str]:
        """Return what investigators may read besides telemetry, by where it is: logs, environments, objects."""


@dataclass(frozen=True)
class ClusterReadings(Readings):
    """A release with observability.

    Args:
        prometheus: its base URL.
        namespace: of the release.
        alerts: a recorder that was started.
        compare: compare the records now, and return the kinds of mismatches; raise Unavailable.
        objects: return the texts of the namespace's objects and logs.
    """

    prometheus: str
    namespace: str
    alerts: AlertRecorder
    compare: Callable[[], Sequence[str]]
    objects: Callable[[], Mapping[str, str]] = dict

    def effect(self, effect: Effect) -> float | None:
        values = [value for _, value in self._query(effect.query)]
        return (min if effect.above is None else max)(values, default=None)

    def bounds(self, effect: Effect) -> Bounds:
        return effect

    def failed_share(self) -> float | None:
        return next((value for _, value in self._query(_FAILED_SHARE)), None)

    def mismatches(self) -> Mapping[str, int] | None:
        return Counter(self.compare())

    def firings(self, since: float) -> Sequence[Firing]:
        return self.alerts.since(since)

    def burnt(self) -> frozenset[str]:
        return frozenset(f"ErrorBudgetBurn({labels['slo']})" for labels, _ in self._query(_BURNT))

    def visible(self) -> Mapping[str, str]:
        return self.objects()

    def _query(self, query: str) -> list[tuple[Mapping[str, str], float]]:
        """Return the labels and values of all series that are numbers."""
        matched = query.replace("$in", f'k8s_namespace_name="{self.namespace}"')
        url = f"{self.prometheus.rstrip('/')}/api/v1/query?{urlencode({'query': matched})}"
        try:
            with urllib.request.urlopen(url, timeout=_TIMEOUT_SECONDS) as response:  # noqa: S310 - the user's address
                found = json.load(response)["data"]["result"]
        except urllib.error.HTTPError as error:
            raise QueryRefused(f"Prometheus refuses {matched!r}: {error}") from error
        except (OSError, http.client.HTTPException) as error:
            raise Unavailable(f"Prometheus does not answer at {self.prometheus}") from error
        values = [(series["metric"], float(series["value"][1])) for series in found]
        return [(labels, value) for labels, value in values if not math.isnan(value)]


@dataclass(frozen=True)
class LocalReadings(Readings):
    """The shop that `shop up` runs in the current folder. It has no alerts."""

    def effect(self, effect: Effect) -> float | None:
        local = effect.local
        return float(_service(local.service)[local.figure]) if local else None

    def bounds(self, effect: Effect) -> Bounds:
        return effect.local or effect

    def failed_share(self) -> float | None:
        found = _service("storefront")
        return found["error_rate"] / found["rate"] if found["rate"] else None

    def mismatches(self) -> Mapping[str, int] | None:
        found = control_room_client.status()["reconciliation"]
        if found["unread"]:
            return None
        return Counter(mismatch["kind"] for mismatch in found["mismatches"])

    def firings(self, since: float) -> Sequence[Firing]:
        return ()

    def visible(self) -> Mapping[str, str]:
        run = control_room_client.require_run()
        logs = Path(run.folder, DATA, "log").glob("*.log")
        return {**environments(run), **{str(path): path.read_text(errors="replace") for path in logs}}


def _service(name: str) -> Mapping[str, Any]:
    for service in control_room_client.status()["services"]:
        if service["name"] == name:
            return cast("Mapping[str, Any]", service)
    raise UnknownService(f"{name} is not part of this shop")
