"""The compiled clients that the benchmarks start."""

from pathlib import Path
from typing import Any

import pytest

from shop_lab.bench import clients


def report(*latencies: float, status: str = "OK") -> dict[str, Any]:
    return {
        "statusCodeDistribution": {status: len(latencies)},
        "errorDistribution": {},
        "rps": 120.0,
        "details": [{"latency": milliseconds * 1e6} for milliseconds in latencies],
    }


def test_latencies_are_in_milliseconds() -> None:
    assert clients.parse_ghz(report(3, 1, 2), 3, 0.5) == clients.Result(120, [3, 1, 2], 0.5)


def test_a_failed_call_ends_the_benchmark() -> None:
    with pytest.raises(SystemExit, match="UNAVAILABLE"):
        clients.parse_ghz(report(1, 2, status="UNAVAILABLE"), 2, 0.5)


def test_a_missing_ghz_ends_the_benchmark_with_how_to_install_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in ("PATH", "GOBIN", "GOPATH"):
        monkeypatch.setenv(name, str(tmp_path))
    with pytest.raises(SystemExit, match="go install"):
        clients.find_ghz()


def test_a_missing_h2load_ends_the_benchmark_with_its_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    with pytest.raises(SystemExit, match="nghttp2-client"):
        clients.find_h2load()
