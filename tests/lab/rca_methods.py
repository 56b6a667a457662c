# /// script
# requires-python = "==3.12.*"
# dependencies = ["RCAEval==1.8.1", "pandas>=2.2", "scikit-learn>=1.5", "numpy>=2", "requests", "tqdm", "networkx"]
# ///
"""How well BARO, n-sigma and TraceRCA find the services at fault in cases that `shop incident export` wrote.

`uv run --script tests/lab/rca_methods.py FOLDER` runs RCAEval's own loaders and methods on all cases in the folder, in
an environment of its own, and prints AC@1 and Avg@5 for each kind of fault beside what guessing would reach.
"""

import sys
from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
from RCAEval.benchmark.evaluation import Evaluator
from RCAEval.classes.graph import Node
from RCAEval.e2e import baro, nsigma, tracerca
from RCAEval.utility import read_metrics, read_traces

Ranks = Sequence[str]
_DEPTH = 5


def by_metrics(method: Callable[..., Any], case: Path, injected: int) -> Ranks:
    """Return columns, the most suspicious first."""
    metrics = read_metrics(case)
    return list(method(metrics, injected, dataset="shop")["ranks"])


def by_traces(case: Path, injected: int) -> Ranks:
    """Return `<service>_<operation>`, the most suspicious first; operations that are new have no normal duration."""
    traces = read_traces(case)
    for name in ("startTime", "duration"):
        traces[name] = pd.to_numeric(traces[name])
    at = injected * 1_000_000
    operations = traces["serviceName"] + traces["operationName"]
    usual = operations[traces["startTime"] + traces["duration"] < at]
    return list(tracerca(traces[operations.isin(usual)].copy(), at)["ranks"])


METHODS: dict[str, Callable[[Path, int], Ranks]] = {
    "BARO": lambda case, injected: by_metrics(baro, case, injected),
    "n-sigma": lambda case, injected: by_metrics(nsigma, case, injected),
    "TraceRCA": by_traces,
}


def main(folder: Path) -> None:
    """Print a table."""
    evaluators: defaultdict[tuple[str, str], Evaluator] = defaultdict(lambda: Evaluator(_DEPTH))
    for case in sorted(path.parent for path in folder.glob("*/inject_time.txt")):
        _, service, kind, _ = case.name.split("_")
        injected = int((case / "inject_time.txt").read_text())
        candidates = {name.split("_")[0] for name in read_metrics(case).columns if name != "time"}
        for method, run in METHODS.items():
            ranked = list(dict.fromkeys(name.split("_")[0] for name in run(case, injected)))
            print(f"{case.name}: {method} {', '.join(ranked[:_DEPTH])}")  # noqa: T201
            for group in (kind, "all"):
                nodes = [Node(name, "") for name in ranked]
                evaluators[group, method].add_case(nodes, Node(service, ""), len(candidates), service in candidates)
    print("\n| kind | cases | method | AC@1 | Avg@5 | chance AC@1 | chance Avg@5 |\n|---|---|---|---|---|---|---|")  # noqa: T201
    for (kind, method), found in sorted(evaluators.items()):
        reached = (found.accuracy(1), found.average(_DEPTH), found.chance_accuracy(1), found.chance_average(_DEPTH))
        print(f"| {kind} | {found.num} | {method} | {' | '.join(f'{value:.2f}' for value in reached)} |")  # noqa: T201


if __name__ == "__main__":
    main(Path(sys.argv[1]))
