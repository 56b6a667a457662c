"""Five incidents on a real cluster: is each detected, does one page name the cause, do the dashboards lead to it?

`python incidents.py NAMESPACE RELEASE PROMETHEUS ALERTMANAGER [INCIDENT...]` runs them on a release with customers
(`load.enabled`), observability and the values of incident-values.yaml. For each: the fault starts, the expected alert
fires within its time, no other page is sent, the walk from *Is the shop well?* to the cause answers rightly at each
step, the fault ends, and the alert resolves. Prints a table; exits 1 if anything differs.
"""

import json
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
from dashboards import walk

from shop_lab.incidents.alerts import GROUP_WAIT_SECONDS, AlertRecorder, Firing

_RESOLVE_WITHIN_SECONDS = 900


@dataclass(frozen=True)
class Cluster:
    """A release on the cluster that KUBECONFIG names."""

    namespace: str
    release: str

    def kubectl(self, *arguments: str, stdin: str | None = None) -> str:
        """Run kubectl in the release's namespace and return what it prints. Raise CalledProcessError if it fails."""
        command = ["kubectl", "--namespace", self.namespace, *arguments]
        return subprocess.run(command, input=stdin, check=True, capture_output=True, text=True).stdout

    def get(self, kind_and_name: str) -> Any:
        """Return an object."""
        return json.loads(self.kubectl("get", kind_and_name, "--output", "json"))

    def name(self, component: str) -> str:
        """Return the name of a component's objects."""
        return f"{self.release}-{component}"

    def scale(self, workload: str, replicas: int) -> None:
        """Scale a workload such as `deployment/cart`, and wait until it has so many pods."""
        kind, _, component = workload.partition("/")
        full = f"{kind}/{self.name(component)}"
        self.kubectl("scale", full, f"--replicas={replicas}")
        self.kubectl("rollout", "status", full, "--timeout=3m")


@dataclass(frozen=True)
class Question:
    """A panel of a dashboard and the answer that leads on.

    Attributes:
        answer: whether the panel's values, by series, show the fault.
        conclusion: what an engineer reads there.
        service: the value of the dashboard's variable, if it has one.
    """

    dashboard: str
    panel: str
    answer: Callable[[Mapping[str, float]], bool]
    conclusion: str
    service: str = ""


@dataclass(frozen=True)
class Incident:
    """A fault and what must be seen of it.

    Attributes:
        start: brings the fault about.
        end: removes it; None if it ends by itself.
        alert: the expected alert, as `Firing.name`.
        within_seconds: from the start of the fault until that alert fires.
        pages: alerts that may page; no other may.
        hold_seconds: how long the fault lasts at least.
    """

    name: str
    start: Callable[[Cluster], None]
    end: Callable[[Cluster], None] | None
    alert: str
    within_seconds: float
    pages: frozenset[str]
    questions: tuple[Question, ...]
    hold_seconds: float = 0


@dataclass
class Report:
    """What happened in one incident. Times are in seconds after the start of the fault, or after its end."""

    incident: Incident
    began: float
    ended: float = 0.0
    detected: Firing | None = None
    pages: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    @property
    def row(self) -> str:
        """A line of the table."""
        detected = resolved = float("nan")
        if self.detected is not None:
            detected = self.detected.began - self.began
            resolved = (self.detected.ended or float("nan")) - self.ended
        verdict = "; ".join(self.problems) or "as expected"
        pages = ", ".join(self.pages) or "none"
        times = f"{detected:.0f} s | {resolved:.0f} s"
        return f"| {self.incident.name} | {self.incident.alert} | {times} | {pages} | {verdict} |"


# ------------------------------------------------------------------ faults


def lock_charges(cluster: Cluster) -> None:
    """Lock payment's table for a minute."""
    statement = "BEGIN; LOCK TABLE charges IN ACCESS EXCLUSIVE MODE; SELECT pg_sleep(60); COMMIT"
    psql = f'psql --username=postgres --dbname=payment --command="{statement}" >/dev/null 2>&1 &'
    cluster.kubectl("exec", f"{cluster.name('postgresql')}-0", "--", "sh", "-c", psql)


def add_failing_replica(cluster: Cluster) -> None:
    """Add a pod to product-catalog in which every GetProduct fails."""
    deployment = cluster.get(f"deployment/{cluster.name('product-catalog')}")
    template = deployment["spec"]["template"]
    container = template["spec"]["containers"][0]
    failpoints = {"name": "FAILPOINTS", "value": "shop.ProductCatalogService/GetProduct=error"}
    container["env"] = [*container["env"], failpoints]
    name = f"{cluster.name('product-catalog')}-failing"
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": template["metadata"]["labels"]},
        "spec": template["spec"],
    }
    cluster.kubectl("apply", "--filename", "-", stdin=json.dumps(pod))
    cluster.kubectl("wait", f"pod/{name}", "--for=condition=Ready", "--timeout=2m")


def remove_failing_replica(cluster: Cluster) -> None:
    cluster.kubectl("delete", "pod", f"{cluster.name('product-catalog')}-failing")


def stop_relay(cluster: Cluster) -> None:
    cluster.kubectl("scale", "deployment/mail-relay", "--replicas=0")


def start_relay(cluster: Cluster) -> None:
    cluster.kubectl("scale", "deployment/mail-relay", "--replicas=1")
    cluster.kubectl("rollout", "status", "deployment/mail-relay", "--timeout=2m")


def kill_valkey(cluster: Cluster) -> None:
    """Kill Valkey, and keep it from starting again."""
    cluster.kubectl("scale", f"statefulset/{cluster.name('valkey')}", "--replicas=0")
    cluster.kubectl("delete", "pod", f"{cluster.name('valkey')}-0", "--grace-period=0", "--force", "--ignore-not-found")


def start_valkey(cluster: Cluster) -> None:
    cluster.scale("statefulset/valkey", 1)


def starve_checkout(cluster: Cluster) -> None:
    """Give checkout's pod a CPU limit, and use most of it up within the container."""
    _patch_checkout(cluster, {"op": "add", "path": _CPU_LIMIT, "value": "100m"})
    burn = f"for i in $(seq {_BUSY_LOOPS}); do timeout 600 sh -c 'while :; do :; done' & done >/dev/null 2>&1"
    cluster.kubectl("exec", f"deployment/{cluster.name('checkout')}", "--", "sh", "-c", burn)


def feed_checkout(cluster: Cluster) -> None:
    """Replace the pod by one without a limit; the busy loops end with their pod."""
    _patch_checkout(cluster, {"op": "remove", "path": _CPU_LIMIT})


_CPU_LIMIT = "/spec/template/spec/containers/0/resources/limits/cpu"
_BUSY_LOOPS = 20


def _patch_checkout(cluster: Cluster, change: Mapping[str, str]) -> None:
    deployment = f"deployment/{cluster.name('checkout')}"
    cluster.kubectl("patch", deployment, "--type=json", "--patch", json.dumps([change]))
    cluster.kubectl("rollout", "status", deployment, "--timeout=5m")


# ------------------------------------------------------------------ a run


def run(incident: Incident, cluster: Cluster, recorder: AlertRecorder, prometheus: str) -> Report:
    """Run one incident until its fault has ended."""
    say(f"== {incident.name}")
    wait_for(lambda: not _disturbed(recorder, incident), _RESOLVE_WITHIN_SECONDS)  # by an earlier incident
    report = Report(incident, time.time())
    incident.start(cluster)
    wait_for(lambda: bool(_firing(recorder, incident.alert)), incident.within_seconds - (time.time() - report.began))
    report.detected = next(iter(_firing(recorder, incident.alert)), None)
    if report.detected is None:
        report.problems.append(f"not detected within {incident.within_seconds:.0f} s")
    else:
        say(f"{incident.alert} fires after {report.detected.began - report.began:.0f} s")
    for question in incident.questions:
        if not answered(question, prometheus):
            report.problems.append(f"{question.dashboard}: {question.panel} does not show it")
    time.sleep(max(0.0, report.began + incident.hold_seconds - time.time()))
    if incident.end is not None:
        incident.end(cluster)
    report.ended = time.time()
    wait_for(lambda: False, GROUP_WAIT_SECONDS)  # the last page of this fault
    pages = {firing.name for firing in recorder.since(report.began) if firing.paged}
    for name in sorted(pages - incident.pages):
        report.problems.append(f"{name} paged too")
    report.pages = sorted(pages)
    say(f"pages: {', '.join(report.pages) or 'none'}")
    others = {firing.name for firing in recorder.since(report.began)} - pages
    say(f"tickets and inhibited alerts: {', '.join(sorted(others)) or 'none'}")
    return report


def answered(question: Question, prometheus: str, within_seconds: float = 60) -> bool:
    """Ask until the panel shows the fault: a rate needs some samples after its start."""
    values: Mapping[str, float] = {}

    def shows_it() -> bool:
        nonlocal values
        chosen = {"service": question.service} if question.service else {}
        values = walk(prometheus, question.dashboard, question.panel, chosen)
        return question.answer(values)

    found = wait_for(shows_it, within_seconds)
    shown = ", ".join(
        f"{series}: {value:.4g}" for series, value in sorted(values.items(), key=lambda item: -item[1])[:4]
    )
    say(f"{'yes' if found else 'NO '} {question.dashboard} / {question.panel}: {question.conclusion} [{shown}]")
    return found


def wait_for(condition: Callable[[], bool], seconds: float) -> bool:
    """Return whether the condition became true in time."""
    deadline = time.time() + seconds
    while not condition():
        if time.time() > deadline:
            return False
        time.sleep(2)
    return True


def _firing(recorder: AlertRecorder, alert: str) -> list[Firing]:
    return [firing for firing in recorder.active() if firing.name == alert]


def _disturbed(recorder: AlertRecorder, incident: Incident) -> bool:
    # The page on six hours ends half an hour after the errors; it is not a new one then.
    pages = [firing for firing in recorder.active() if firing.labels.get("severity") == "page"]
    return any(page.labels.get("window") != "6h" for page in pages) or bool(_firing(recorder, incident.alert))


def _unresolved(reports: list[Report]) -> list[Report]:
    return [report for report in reports if report.detected is not None and report.detected.ended is None]


def say(line: str) -> None:
    """Print with the time of day."""
    print(f"{time.strftime('%H:%M:%S')} {line}", flush=True)  # noqa: T201


def main(namespace: str, release: str, prometheus: str, alertmanager: str, *names: str) -> int:
    """Run the incidents, all without names; return 0 if every one was as expected."""
    from incident_walks import INCIDENTS  # noqa: PLC0415

    cluster = Cluster(namespace, release)
    recorder = AlertRecorder(alertmanager)
    recorder.start()
    reports = [
        run(incident, cluster, recorder, prometheus) for incident in INCIDENTS if not names or incident.name in names
    ]
    wait_for(lambda: not _unresolved(reports), _RESOLVE_WITHIN_SECONDS)
    recorder.close()
    for report in _unresolved(reports):
        report.problems.append("did not resolve")
    print("\n| incident | alert | detected after | resolved after the fault's end | pages | verdict |")  # noqa: T201
    print("|---|---|---|---|---|---|")  # noqa: T201
    for report in reports:
        print(report.row)  # noqa: T201
    return 1 if any(report.problems for report in reports) else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
