"""Shifts calls to a new version of the recommendation, and back as soon as that breaks the objectives of its calls.

`python rollout.py NAMESPACE RELEASE STABLE CANDIDATE PROMETHEUS [SECONDS]` sets the weights in the release's GRPCRoute:
the candidate gets 1 % of the calls, then 10, 30, 60 and 100 %, each for so many seconds (30). The objectives are those
of the SLO `list-recommendations`, as Prometheus has them. Exits 0 if the candidate has all calls, 1 if it is withdrawn.
"""

import json
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from dashboard_queries import get

# At first so few calls that a version which fails all of them costs less than one call in a hundred.
STEPS = (1, 10, 30, 60, 100)
POLL_SECONDS = 3.0
# As the alert on a fast burn: at this rate an error budget of 30 days lasts for two.
FAST_BURN = 14.4
MIN_FAILED = 3
# Fewer do not show that a version is good, nor that it is slow: the first calls of a process are.
MIN_CALLS = 10
# How many times as long a step with fewer calls may last.
PATIENCE = 4

METHOD = "shop.RecommendationService/ListRecommendations"
FAULTS = "DATA_LOSS|DEADLINE_EXCEEDED|INTERNAL|UNAVAILABLE|UNIMPLEMENTED|UNKNOWN"

Query = Callable[[str], Mapping[str, float]]


@dataclass(frozen=True)
class Objectives:
    """Shares of calls that must not fail, and that must end within so many seconds."""

    availability: float
    latency: float
    seconds: float


@dataclass(frozen=True)
class Calls:
    """Calls that a version has served since a point in time."""

    total: float
    failed: float
    slow: float

    def problem(self, objectives: Objectives) -> str:
        """Return which objective they break, with figures; empty if none."""
        if self.failed >= MIN_FAILED and self.failed > FAST_BURN * (1 - objectives.availability) * self.total:
            return f"{self.failed:.0f} of {self.total:.0f} calls failed"
        if self.total >= MIN_CALLS and self.slow > FAST_BURN * (1 - objectives.latency) * self.total:
            return f"{self.slow:.0f} of {self.total:.0f} calls took longer than {objectives.seconds} s"
        return ""


class Telemetry:
    """Counts the calls of a version in Prometheus, by instance: a new one counts from zero."""

    def __init__(self, query: Query, namespace: str, version: str) -> None:
        self._query = query
        slo = f'{{slo="list-recommendations",k8s_namespace_name="{namespace}"}}'
        ratios = query(f"sum by (objective) (slo:objective:ratio{slo})")
        (seconds,) = query(f"sum by (slo) (slo:latency_objective:seconds{slo})").values()
        self.objectives = Objectives(ratios["availability"], ratios["latency"], seconds)
        self._calls = f'k8s_namespace_name="{namespace}",service_version="{version}",rpc_method="{METHOD}"'
        self._before = self._counts()

    def calls(self) -> Calls:
        """Return the calls since this object was made; those of the last half minute may be missing."""
        total, failed, fast = (
            sum(value - before.get(instance, 0) for instance, value in now.items())
            for now, before in zip(self._counts(), self._before, strict=True)
        )
        return Calls(total, failed, total - fast)

    def _counts(self) -> list[Mapping[str, float]]:
        bound = str(self.objectives.seconds).replace(".", r"\\.")
        series = (
            f"count{{{self._calls}}}",
            f'count{{{self._calls},rpc_response_status_code=~"{FAULTS}"}}',
            f'bucket{{{self._calls},le=~"{bound}(\\\\.0)?"}}',
        )
        return [self._query(f"sum by (service_instance_id) (rpc_server_call_duration_seconds_{of})") for of in series]


class Route:
    """The GRPCRoute of the release's recommendation in a mesh, whose last rule has the weights."""

    def __init__(self, namespace: str, release: str) -> None:
        self._namespace, self._name = namespace, f"{release}-recommendation"

    def _kubectl(self, *arguments: str) -> str:
        command = ["kubectl", "--namespace", self._namespace, *arguments]
        return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout

    def is_ready(self, version: str) -> bool:
        """Return whether a pod of the version is ready."""
        ready = "--output=jsonpath={.status.readyReplicas}"
        return self._kubectl("get", "deployment", f"{self._name}-{version}", ready) not in {"", "0"}

    def set_weights(self, weights: Mapping[str, int]) -> None:
        """Set the weights of versions in one change. Raise KeyError if the rule does not have one of them."""
        rules = json.loads(self._kubectl("get", "grpcroute", self._name, "--output=json"))["spec"]["rules"]
        folder = f"/spec/rules/{len(rules) - 1}/backendRefs"
        places = {backend["name"]: number for number, backend in enumerate(rules[-1]["backendRefs"])}
        patch: list[dict[str, Any]] = [
            {"op": "add", "path": f"{folder}/{places[f'{self._name}-{version}']}/weight", "value": weight}
            for version, weight in weights.items()
        ]
        self._kubectl("patch", "grpcroute", self._name, "--type=json", f"--patch={json.dumps(patch)}")


def roll_out(route: Route, telemetry: Telemetry, stable: str, candidate: str, seconds: float) -> bool:
    """Return whether the candidate has all calls; otherwise, also after an error, the stable version has them."""
    started, problem = time.monotonic(), "the rollout itself failed"
    try:
        for weight in STEPS:
            route.set_weights({stable: 100 - weight, candidate: weight})
            problem = problem_of_step(route, telemetry, candidate, weight, seconds)
            if problem:
                break
    finally:
        if problem:
            route.set_weights({stable: 100, candidate: 0})
        outcome = f"is withdrawn: {problem}" if problem else "is promoted"
        report(f"{candidate} {outcome}, after {time.monotonic() - started:.0f} s")
    return not problem


def problem_of_step(route: Route, telemetry: Telemetry, candidate: str, weight: int, seconds: float) -> str:
    """Watch the candidate for a step. Return why it must be withdrawn; empty if the next step may follow."""
    earlier, started = telemetry.calls().total, time.monotonic()
    while True:
        time.sleep(POLL_SECONDS)
        calls, elapsed = telemetry.calls(), time.monotonic() - started
        seen = calls.total - earlier
        if problem := calls.problem(telemetry.objectives):
            return problem
        if not route.is_ready(candidate):
            return "no pod of it is ready"
        if elapsed > seconds and seen >= MIN_CALLS:
            report(f"{weight} %: {seen:.0f} more calls; {calls.failed:.0f} have failed, {calls.slow:.0f} were slow")
            return ""
        if elapsed > PATIENCE * seconds:
            return f"no more than {seen:.0f} calls in {elapsed:.0f} s"


def report(text: str) -> None:
    print(text, flush=True)  # noqa: T201


def values_of(prometheus: str, expression: str) -> Mapping[str, float]:
    """Evaluate an expression with `sum by` one label: values by that label."""
    result = get(prometheus, "query", query=expression)["result"]
    return {"".join(sample["metric"].values()): float(sample["value"][1]) for sample in result}


if __name__ == "__main__":
    namespace, release, stable, candidate, prometheus, *seconds = sys.argv[1:]
    telemetry = Telemetry(partial(values_of, prometheus), namespace, candidate)
    promoted = roll_out(Route(namespace, release), telemetry, stable, candidate, float(seconds[0]) if seconds else 30)
    sys.exit(0 if promoted else 1)
