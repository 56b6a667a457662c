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

    def __init__(self, failed: float = 0, slow: float = 0, calls: float = 100, pods: int | None = 1) -> None:
        self.failed, self.slow, self.calls, self.pods = failed, slow, calls, pods
        self.looks = 0
        self.shares: list[int] = []

    def query(self, expression: str) -> Mapping[str, float]:
        if "slo:objective" in expression:
            return {"availability": 0.999, "latency": 0.99}
        if "slo:latency" in expression:
            return {"list-recommendations": 0.25}
        assert 'k8s_namespace_name="shop",service_version="v2",rpc_method="shop.RecommendationService' in expression
        if not self.calls:
            return {}
        self.looks += "_count" in expression and "status_code" not in expression
        bad = self.failed if "status_code" in expression else self.calls - self.slow * ("_bucket" in expression)
        old = 1000.0 + 100 * self.looks * ("status_code" not in expression)
        return {"old": old, **({"new": bad * (self.looks - 1)} if self.looks > 1 else {})}

    def set_weights(self, weights: Mapping[str, int]) -> None:
        assert sum(weights.values()) == 100
        self.shares.append(weights["v2"])

    def is_ready(self, version: str) -> bool:
        assert version == "v2"
        if self.pods is None:
            raise ConnectionError("no cluster")
        return self.pods > 0


@pytest.fixture
def rollout(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(ROOT / "tests/e2e"))
    module = import_module("rollout")
    monkeypatch.setattr(module, "POLL_SECONDS", 0)
    return module


def run(rollout: Any, cluster: Cluster, seconds: float = 0) -> bool:
    telemetry = rollout.Telemetry(cluster.query, "shop", "v2")
    return bool(rollout.roll_out(cluster, telemetry, "v1", "v2", seconds))


@pytest.mark.parametrize("cluster", [Cluster(), Cluster(failed=1), Cluster(slow=20)])
def test_a_version_within_its_objectives_gets_more_calls_and_then_all(rollout: Any, cluster: Cluster) -> None:
    assert run(rollout, cluster)
    assert cluster.shares == SHARES


@pytest.mark.parametrize(
    ("cluster", "seconds"), [(Cluster(failed=5), 1), (Cluster(slow=60), 1), (Cluster(calls=0), 0), (Cluster(pods=0), 0)]
)
def test_a_version_that_breaks_one_or_has_no_calls_or_pods_is_withdrawn_at_once(
    rollout: Any, cluster: Cluster, seconds: float
) -> None:
    assert not run(rollout, cluster, seconds)
    assert cluster.shares == [1, 0]


def test_an_error_of_the_rollout_withdraws_the_version(rollout: Any) -> None:
    cluster = Cluster(pods=None)
    with pytest.raises(ConnectionError):
        run(rollout, cluster)
    assert cluster.shares == [1, 0]
