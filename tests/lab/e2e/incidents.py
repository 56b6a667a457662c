"""Prints what runs of incidents have shown as a table: `python tests/lab/e2e/incidents.py FOLDER`."""

import sys
from collections.abc import Iterator
from pathlib import Path

from shop_lab.incidents.record import InjectedFault, ObservedAlert, RecordMalformed, Truth, read


def table(folder: Path) -> Iterator[str]:
    """Yield the lines of the table."""
    yield "| fault | effective | first alert | first page | healed | invariants | problems |"
    yield "|---|---|---|---|---|---|---|"
    runs = []
    for run in folder.iterdir():
        try:
            runs.append(read(run)[1])
        except RecordMalformed as error:
            yield f"| {error} |"
    for truth in sorted(runs, key=lambda truth: (truth.plan.faults, truth.faults[0].times.requested)):
        yield f"| {' | '.join(row(truth))} |"


def row(truth: Truth) -> list[str]:
    """Return the cells of a run; times are seconds after the fault began or was removed."""
    first = truth.faults[0]
    began = first.times.requested
    alerts = sorted(truth.alerts, key=lambda alert: alert.fired)
    broken = [
        f"{name} {verdict} {phase}"
        for phase, found in truth.invariants.items()
        for name, verdict in found.items()
        if verdict != "holds" and phase != "during"
    ]
    return [
        ", ".join(truth.plan.faults),
        since(began, first.times.effective),
        fired(began, alerts),
        fired(began, [alert for alert in alerts if alert.paged]),
        healed(first),
        "; ".join(broken) or "hold",
        "; ".join(truth.problems),
    ]


def healed(injected: InjectedFault) -> str:
    return since(injected.times.removed or 0, injected.times.recovered)


def fired(began: int, alerts: list[ObservedAlert]) -> str:
    return f"{alerts[0].name} {since(began, alerts[0].fired)}" if alerts else "none"


def since(began: int, moment: int | None) -> str:
    return "never" if moment is None else f"{(moment - began) / 1e9:.0f} s"


if __name__ == "__main__":
    print(*table(Path(sys.argv[1])), sep="\n")  # noqa: T201
