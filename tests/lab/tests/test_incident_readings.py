"""What an incident is judged by, as Prometheus and a local shop answer."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from chassis.errors import Unavailable
from shop_cli import control_room_client
from shop_cli.local.run_file import Run
from shop_lab.incidents import readings
from shop_lab.incidents.alerts import AlertRecorder
from shop_lab.incidents.catalogue import Effect
from shop_lab.incidents.readings import ClusterReadings, LocalReadings, QueryRefused

EFFECT = Effect(query="sum(up{$in})", above=1)


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
def prometheus() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), FakePrometheus) as server:
        thread = Thread(target=server.serve_forever, args=[0.01])
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def cluster(url: str) -> ClusterReadings:
    return ClusterReadings(url, "shop-a", AlertRecorder("http://127.0.0.1:1"), lambda: ["CHARGED_TWICE"])


def series(value: str) -> dict[str, Any]:
    return {"metric": {}, "value": [0, value]}


@pytest.mark.parametrize(
    ("found", "value"),
    [([series("1.5")], 1.5), ([series("NaN")], None), ([], None), ([series("1"), series("3"), series("2")], 3)],
)
def test_an_effect_is_read_in_the_namespace_of_the_release(
    prometheus: str, monkeypatch: pytest.MonkeyPatch, found: list[Any], value: float | None
) -> None:
    monkeypatch.setattr(FakePrometheus, "answers", {'sum(up{k8s_namespace_name="shop-a"})': found})
    assert cluster(prometheus).effect(EFFECT) == value


def test_budgets_that_burn_are_named_as_their_alerts(prometheus: str, monkeypatch: pytest.MonkeyPatch) -> None:
    found = [{"metric": {"slo": slo}, "value": [0, "2"]} for slo in ("get-ads", "convert")]
    query = readings._BURNT.replace("$in", 'k8s_namespace_name="shop-a"')
    monkeypatch.setattr(FakePrometheus, "answers", {query: found})
    assert cluster(prometheus).burnt() == {"ErrorBudgetBurn(get-ads)", "ErrorBudgetBurn(convert)"}


def test_a_query_that_prometheus_refuses_is_named(prometheus: str) -> None:
    with pytest.raises(QueryRefused, match=r"^Prometheus refuses 'sum\(up"):
        cluster(prometheus).effect(EFFECT)


def test_a_prometheus_that_does_not_answer_is_named() -> None:
    with pytest.raises(Unavailable, match=r"^Prometheus does not answer at http://127\.0\.0\.1:1$"):
        cluster("http://127.0.0.1:1").effect(EFFECT)


@pytest.mark.parametrize(("figure", "least"), [("cpu_share", 0), ("memory_mib", 64)])
def test_the_process_of_a_service_is_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, figure: str, least: float
) -> None:
    package = tmp_path / "ad_service"
    package.mkdir()
    (package / "__init__.py").touch()  # instead of the installed one
    (package / "__main__.py").write_text("taken = bytearray(b'1' * 64 * 2**20)\nprint(flush=True)\nwhile True: pass\n")
    supervisor = f"import subprocess, sys; subprocess.run([{sys.executable!r}, '-m', 'ad_service'])"
    with subprocess.Popen(
        [sys.executable, "-c", supervisor], cwd=tmp_path, stdout=subprocess.PIPE, start_new_session=True
    ) as process:
        assert process.stdout
        process.stdout.readline()
        monkeypatch.setattr(control_room_client, "require_run", lambda: Run(process.pid, str(tmp_path)))
        effect = Effect(query="x", above=1, local={"figure": figure, "service": "ad", "above": 1})
        value = LocalReadings().effect(effect)
        (children,) = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        subprocess.run(["kill", "-KILL", children], check=True)
    assert value is not None
    assert least <= value < 4 * (least or os.cpu_count() or 1)


def test_the_local_bounds_are_those_of_the_local_figure() -> None:
    effect = Effect(query="x", above=1, local={"figure": "rate", "service": "ad", "below": 2})
    assert LocalReadings().bounds(effect).contain(1.5)
    assert not cluster("").bounds(effect).contain(0.5)
