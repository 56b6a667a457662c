"""What an incident is judged by: Prometheus, and Alertmanager's alerts as they fired, resolved and paged."""

from collections.abc import Sequence
from typing import Any

import httpx2
import pytest

from chassis.errors import Unavailable
from shop_lab.incidents import readings
from shop_lab.incidents.alerts import AlertRecorder
from shop_lab.incidents.catalogue import Effect
from shop_lab.incidents.readings import QueryRefused, Readings

EFFECT = Effect(query="sum(up{$in})", above=1)
IN = 'k8s_namespace_name="shop-a"'
VALUES = [{"metric": {}, "value": [0, value]} for value in ("NaN", "1", "3", "2")]
RESULTS = {
    f"sum(up{{{IN}}})": VALUES,
    "none": VALUES[:1],
    readings._BURNT.replace("$in", IN): [{"metric": {"slo": slo}, "value": [0, "2"]} for slo in ("get-ads", "convert")],
}


def respond(request: httpx2.Request) -> httpx2.Response:
    """Answer queries by their text, others with 400."""
    query = request.url.params["query"]
    return httpx2.Response(200 if query in RESULTS else 400, json={"data": {"result": RESULTS.get(query)}})


@pytest.fixture
def release() -> Readings:
    """A release whose Prometheus has an effect for three replicas, and two budgets that burn."""
    return reading(httpx2.MockTransport(respond))


def reading(transport: httpx2.BaseTransport | None) -> Readings:
    client = httpx2.Client(transport=transport, base_url="http://127.0.0.1:1")
    return Readings(client, "shop-a", AlertRecorder(""), list, dict)


def test_an_effect_is_the_furthest_value_of_the_release_and_budgets_are_named_as_alerts(release: Readings) -> None:
    below = Effect(query=EFFECT.query, below=1)
    assert [release.effect(effect) for effect in (EFFECT, below, Effect(query="none", above=1))] == [3, 1, None]
    assert release.burnt() == {"ErrorBudgetBurn(get-ads)", "ErrorBudgetBurn(convert)"}


def test_a_prometheus_that_refuses_or_does_not_answer_is_named(release: Readings) -> None:
    with pytest.raises(QueryRefused, match=r"^Prometheus refuses 'other': 400$"):
        release.effect(Effect(query="other", above=1))
    gone = reading(None)
    with pytest.raises(Unavailable, match=r"^Prometheus does not answer at http://127\.0\.0\.1:1$"):
        gone.effect(EFFECT)
    assert gone.failed_share() is None


# ---------------------------------------------------------------- alerts


def listed(severity: str = "page", *, inhibited: bool = False, **labels: str) -> dict[str, Any]:
    status = {"inhibitedBy": ["other"] if inhibited else []}
    return {"labels": {"alertname": "A", "severity": severity, **labels}, "status": status}


def recorded(*lists: Sequence[dict[str, Any]]) -> AlertRecorder:
    """Record what was listed every twenty seconds, first at 20."""
    recorder = AlertRecorder("")
    for number, alerts in enumerate(lists, start=1):
        recorder.update(list(alerts), number * 20.0)
    return recorder


@pytest.mark.parametrize(
    ("lists", "paged"),
    [
        ([[listed()]] * 3, True),
        ([[listed()]] * 2, False),
        ([[listed("ticket")]] * 3, False),
        ([[listed()], [listed(inhibited=True)], [listed()], [listed()]], False),
    ],
)
def test_an_alert_pages_once_it_was_active_and_not_inhibited_for_long_enough(
    lists: list[list[dict[str, Any]]], *, paged: bool
) -> None:
    (firing,) = recorded(*lists).firings
    assert (firing.paged_at is not None) is paged


def test_an_alert_that_fires_again_is_another_one() -> None:
    recorder = recorded([listed()], [], [listed()])
    assert [(firing.began, firing.ended) for firing in recorder.firings] == [(20, 40), (60, None)]
    assert [firing.began for firing in recorder.active()] == [firing.began for firing in recorder.since(21)] == [60]


def test_an_alert_is_named_with_what_it_is_about() -> None:
    lists = [listed(slo="place-order"), listed(service_name="ad"), listed()]
    assert [firing.name for firing in recorded(lists).firings] == ["A(place-order)", "A(ad)", "A"]
