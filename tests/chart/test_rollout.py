"""tests/e2e/rollout.py, which shifts calls to a new version, without a cluster."""

from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
SHARES = [1, 10, 30, 60, 100]


class Cluster:
    """A route, and a Prometheus that finds 100 more calls of an older instance and of a new one at each look.

    Of the new one's, some fail and some are slow.
    """

    def __init__(self, failed: float = 0, slow: float = 0, calls: float = 100) -> None:
        self.failed, self.slow, self.calls = failed, slow, calls
        self.looks = 0
        self.shares: list[int] = []
        self.pods = 1
        self.error: Exception | None = None

    def query(self, expression: str) -> Mapping[str, float]:
        if "slo:objective" in expression:
            return {"availability": 0.999, "latency": 0.99}
        if "slo:latency" in expression:
            return {"list-recommendations": 0.25}
        assert 'k8s_namespace_name="shop",service_version="v2",rpc_method="shop.RecommendationService' in expression
        self.looks += "_count" in expression and "status_code" not in expression
        bad = self.failed if "status_code" in expression else self.calls - self.slow * ("_bucket" in expression)
        old = 1000.0 + 100 * self.looks * ("status_code" not in expression)
        return {"old": old, **({"new": bad * (self.looks - 1)} if self.looks > 1 else {})}

    def set_weights(self, weights: Mapping[str, int]) -> None:
        assert sum(weights.values()) == 100
        self.shares.append(weights["v2"])

    def is_ready(self, version: str) -> bool:
        assert version == "v2"
        if self.error is not None:
            raise self.error
        return self.pods > 0


@pytest.fixture
def rollout(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(ROOT / "tests/e2e"))
    module = import_module("rollout")
    monkeypatch.setattr(module, "POLL_SECONDS", 0)
    return module


def run(rollout: Any, cluster: Cluster, seconds: float = 0) -> bool:
    telemetry = rollout.Telemetry(cluster.query, "shop", "v2")
    return bool(rollout.Rollout(cluster, telemetry, "v1", "v2", seconds).run())


@pytest.mark.parametrize("cluster", [Cluster(), Cluster(failed=1), Cluster(slow=20)])
def test_a_version_within_its_objectives_gets_more_calls_and_then_all(rollout: Any, cluster: Cluster) -> None:
    assert run(rollout, cluster)
    assert cluster.shares == SHARES


@pytest.mark.parametrize(
    ("cluster", "problem"),
    [
        (Cluster(failed=5), "10 of 400 calls failed"),
        (Cluster(slow=60), "120 of 400 calls took longer than 0.25 s"),
    ],
)
def test_a_version_that_breaks_one_is_withdrawn_at_once(
    rollout: Any, cluster: Cluster, problem: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert not run(rollout, cluster, seconds=1)
    assert cluster.shares == [1, 0]
    assert f"v2 is withdrawn: {problem}" in capsys.readouterr().out


def test_a_version_without_calls_or_pods_is_withdrawn(rollout: Any) -> None:
    silent, gone = Cluster(), Cluster()
    silent.query = lambda expression: {} if "rpc_server" in expression else Cluster().query(expression)  # type: ignore[method-assign]
    assert not run(rollout, silent)
    gone.pods = 0
    assert not run(rollout, gone)
    assert silent.shares == gone.shares == [1, 0]


def test_an_error_of_the_rollout_withdraws_the_version(rollout: Any) -> None:
    cluster = Cluster()
    cluster.error = ConnectionError("no cluster")
    with pytest.raises(ConnectionError):
        run(rollout, cluster)
    assert cluster.shares == [1, 0]
