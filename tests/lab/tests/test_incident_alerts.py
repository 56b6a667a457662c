"""Alerts as Alertmanager lists them: when they fired, resolved and paged."""

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from shop_lab.incidents.alerts import AlertRecorder


def listed(severity: str = "page", labels: Mapping[str, str] = {}, *, inhibited: bool = False) -> dict[str, Any]:
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
        ([[listed(inhibited=True)]] * 3, False),
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


@pytest.mark.parametrize(
    ("labels", "name"), [({"slo": "place-order"}, "A(place-order)"), ({"service_name": "ad"}, "A(ad)"), ({}, "A")]
)
def test_an_alert_is_named_with_what_it_is_about(labels: dict[str, str], name: str) -> None:
    assert recorded([listed("page", labels)]).firings[0].name == name
