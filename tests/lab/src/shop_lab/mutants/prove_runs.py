"""Runs of `shop prove` without a safety device, and the file of their results."""

import json
import tempfile
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from shop_lab.mutants.copies import Copy
from shop_lab.mutants.devices import Device

SEEDS = range(1, 6)
CONTROL = "no device removed"
_TIMEOUT_SECONDS = 400.0


@dataclass(frozen=True, slots=True)
class ProveRun:
    """A run of `shop prove`.

    Attributes:
        device: the removed one, or CONTROL.
        options: of the command line, without the seed.
        verdict: that of the run; or `no verdict` if it ended with an error, or took too long.
        invariants: the violated ones.
        examples: one violation of each of them.
    """

    device: str
    options: str
    seed: int
    verdict: str
    invariants: tuple[str, ...] = ()
    seconds: float = 0.0
    examples: tuple[str, ...] = ()

    @property
    def is_caught(self) -> bool:
        """Whether an invariant was violated; too little exercise or a crash of the run is no proof."""
        return self.verdict == "violated"


class ResultsFile:
    """Runs as lines of JSON. Each new one is appended at once, so that an interrupted table can be continued."""

    def __init__(self, path: Path) -> None:
        self._path = path
        lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
        runs = [_from_json(json.loads(line)) for line in lines]
        self._runs = {(run.device, run.options, run.seed): run for run in runs}

    def find(self, device: str, options: str, seed: int) -> ProveRun | None:
        """Return an earlier run, None if there is none."""
        return self._runs.get((device, options, seed))

    def append(self, run: ProveRun) -> None:
        """Add a run to the end of the file."""
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(asdict(run)) + "\n")


def prove_with_all_seeds(copy: Copy, device: str, options: str, results: ResultsFile, jobs: int) -> list[ProveRun]:
    """Run `shop prove` with each seed that the results lack, so many at a time. Return the runs of all seeds."""

    def run(seed: int) -> ProveRun:
        found = results.find(device, options, seed)
        if found is None:
            found = _prove(copy, device, options, seed)
            results.append(found)
        return found

    with ThreadPoolExecutor(jobs) as pool:
        return list(pool.map(run, SEEDS))


def control_options(devices: Iterable[Device]) -> list[str]:
    """Return the different options with which these devices are removed."""
    return sorted({device.prove.options for device in devices if not device.prove.impossible})


def row(runs: Sequence[ProveRun]) -> str:
    """Return a device's cell of the table."""
    caught = sum(run.is_caught for run in runs)
    violated = sorted({name for run in runs for name in run.invariants}, key=lambda name: int(name[1:]))
    others = sorted({run.verdict for run in runs if not run.is_caught})
    seconds = sum(run.seconds for run in runs) / len(runs)
    cells = [f"{caught} of {len(runs)}", " ".join(violated) or "-", ", ".join(others) or "-", f"{seconds:.0f} s each"]
    return " | ".join(cells)


def _prove(copy: Copy, device: str, options: str, seed: int) -> ProveRun:
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="verdict-") as folder:
        file = Path(folder) / "verdict.json"
        command = ["-m", "shop_cli", "prove", "--json", str(file), "--seed", str(seed), *options.split()]
        status = copy.run(*command, timeout_seconds=_TIMEOUT_SECONDS)
        seconds = round(time.monotonic() - started, 1)
        if not file.exists():
            verdict = "too slow" if status is None else "no verdict"
            return ProveRun(device, options, seed, verdict, seconds=seconds)
        report = json.loads(file.read_text(encoding="utf-8"))
    examples = {name: each["examples"][0] for name, each in report["invariants"].items() if not each["holds"]}
    return ProveRun(device, options, seed, report["verdict"], tuple(examples), seconds, tuple(examples.values()))


def _from_json(run: dict[str, Any]) -> ProveRun:
    lists = {name: tuple(run.get(name, ())) for name in ("invariants", "examples")}
    return ProveRun(**{**run, **lists})
