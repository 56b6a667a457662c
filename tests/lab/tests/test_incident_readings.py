"""What an incident is judged by: Prometheus, and Alertmanager's alerts as they fired, resolved and paged."""

import json
from collections.abc import Iterator, Mapping, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from chassis.errors import Unavailable
from shop_lab.incidents import readings
from shop_lab.incidents.alerts import AlertRecorder
from shop_lab.incidents.catalogue import Effect
from shop_lab.incidents.readings import ClusterReadings, LocalReadings, QueryRefused

EFFECT = Effect(query="sum(up{$in})", above=1, local={"figure": "rate", "service": "ad", "below": 2})
IN = 'k8s_namespace_name="shop-a"'


class FakePrometheus(BaseHTTPRequestHandler):
    """Answers queries by their text, others with 400."""

    answers: Mapping[str, list[Any]] = {}

    def do_GET(self) -> None:
        (query,) = parse_qs(urlsplit(self.path).query)["query"]
        self.send_response(200 if query in self.answers else 400)
        self.end_headers()
        self.wfile.write(json.dumps({"data": {"result": self.answers.get(query)}}).encode())

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def prometheus(monkeypatch: pytest.MonkeyPatch) -> Iterator[ClusterReadings]:
    """A release whose Prometheus has an effect for three replicas, and two budgets that burn."""
    burnt = readings._BURNT.replace("$in", IN)
    effect = [{"metric": {}, "value": [0, value]} for value in ("NaN", "1", "3", "2")]
    slos = [{"metric": {"slo": slo}, "value": [0, "2"]} for slo in ("get-ads", "convert")]
    monkeypatch.setattr(FakePrometheus, "answers", {f"sum(up{{{IN}}})": effect, burnt: slos, "none": effect[:1]})
    with ThreadingHTTPServer(("127.0.0.1", 0), FakePrometheus) as server:
        thread = Thread(target=server.serve_forever, args=[0.01])
        thread.start()
        yield cluster(f"http://127.0.0.1:{server.server_port}")
        server.shutdown()
        thread.join()


def cluster(url: str) -> ClusterReadings:
    return ClusterReadings(url, "shop-a", AlertRecorder("http://127.0.0.1:1"), lambda: ["CHARGED_TWICE"])


def test_an_effect_is_the_furthest_value_of_the_release_and_budgets_are_named_as_their_alerts(
    prometheus: ClusterReadings,
) -> None:
    below = Effect(query=EFFECT.query, below=1)
    assert [prometheus.effect(effect) for effect in (EFFECT, below, Effect(query="none", above=1))] == [3, 1, None]
    assert prometheus.burnt() == {"ErrorBudgetBurn(get-ads)", "ErrorBudgetBurn(convert)"}


def test_a_prometheus_that_refuses_or_does_not_answer_is_named(prometheus: ClusterReadings) -> None:
    with pytest.raises(QueryRefused, match=r"^Prometheus refuses 'other'"):
        prometheus.effect(Effect(query="other", above=1))
    with pytest.raises(Unavailable, match=r"^Prometheus does not answer at http://127\.0\.0\.1:1$"):
        cluster("http://127.0.0.1:1").effect(EFFECT)


def test_the_local_bounds_are_those_of_the_local_figure() -> None:
    assert LocalReadings().bounds(EFFECT).contain(1.5)
    assert not cluster("").bounds(EFFECT).contain(0.5)


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
    assert firing.paged is paged


def test_an_alert_that_fires_again_is_another_one() -> None:
    recorder = recorded([listed()], [], [listed()])
    assert [(firing.began, firing.ended) for firing in recorder.firings] == [(20, 40), (60, None)]
    assert [firing.began for firing in recorder.active()] == [firing.began for firing in recorder.since(21)] == [60]


def test_an_alert_is_named_with_what_it_is_about() -> None:
    lists = [listed(slo="place-order"), listed(service_name="ad"), listed()]
    assert [firing.name for firing in recorded(lists).firings] == ["A(place-order)", "A(ad)", "A"]
