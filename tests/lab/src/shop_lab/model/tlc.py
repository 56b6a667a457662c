"""Runs TLC, the model checker of TLA+."""

import json
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

MODULES = sorted(Path(__file__).parent.glob("*.tla"))

NO_PROGRESS = "progress"
"""A state from which nothing follows, although it is not the end."""

Step: TypeAlias = dict[str, Any]
"""An action of the model with its task, request and price, and what can be observed after it."""


@dataclass(frozen=True, slots=True)
class Configuration:
    """The constants of Orders.tla, which describes them, and the invariants to check.

    Attributes:
        tasks: how many.
        settles: also check that orders settle once the faults end.
        without: the safeguard that is removed.
        runs: take the steps of these runs, and no others; the name of a module Runs, empty for the whole model.
    """

    invariants: tuple[str, ...]
    requests: tuple[str, ...] = ("ann",)
    malformed: tuple[str, ...] = ()
    prices: tuple[int, ...] = (1,)
    one_scope: bool = True
    has_key: bool = True
    tasks: int = 2
    max_attempts: int = 2
    failovers: bool = False
    has_manifest: bool = True
    kinds: tuple[str, ...] = ()
    items: int = 1
    retention: bool = False
    purchases: bool = False
    settles: bool = False
    without: str = ""
    runs: str = ""

    def lines(self) -> Iterator[str]:
        """Yield the lines of the configuration file."""
        yield f"SPECIFICATION {'Conforms' if self.runs else 'Spec'}"
        yield "CONSTANTS"
        yield f"Requests = {_set(self._names(self.requests))}"
        yield f"Malformed = {_set(self._names(self.malformed))}"
        yield f"Prices = {_set(self.prices)}"
        yield f"OneScope = {_boolean(self.one_scope)}"
        yield f"HasKey = {_boolean(self.has_key)}"
        yield f"Tasks = {_set(self._names(f'w{task}' for task in range(1, self.tasks + 1)))}"
        yield f"MaxAttempts = {self.max_attempts}"
        yield f"Failovers = {_boolean(self.failovers)}"
        yield f"HasManifest = {_boolean(self.has_manifest)}"
        yield f"Kinds = {_set(json.dumps(kind) for kind in self.kinds)}"
        yield f"Items = {self.items}"
        yield f"Retention = {_boolean(self.retention)}"
        yield f"Purchases = {_boolean(self.purchases)}"
        yield f"Quiet = {_boolean(self.settles)}"
        yield f'Without = "{self.without}"'
        yield f"CHECK_DEADLOCK {_boolean(bool(self.settles or self.runs))}"
        if not self.runs:
            yield "CONSTRAINT Bounded"
            yield "SYMMETRY Symmetry"
            yield f"INVARIANTS {' '.join(self.invariants)}"

    def _names(self, names: Iterable[str]) -> Iterator[str]:
        """Yield names as strings for recorded runs, otherwise as symmetric model values."""
        return (f'"{name}"' if self.runs else name for name in names)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What TLC found.

    Attributes:
        violated: the invariant; NO_PROGRESS; empty if everything holds.
        actions: of the counterexample.
        states: distinct ones.
        depth: the longest distance of a state from the first one.
    """

    violated: str
    actions: list[str]
    states: int
    depth: int
    seconds: float
    output: str


class Tlc:
    """TLC.

    Args:
        jar: of TLC.
        runs: modules Runs, by the names that configurations have for them.
    """

    def __init__(self, jar: Path, runs: Mapping[str, str]) -> None:
        self._command = ["java", "-XX:+UseSerialGC", "-Xmx2g", "-cp", str(jar.resolve()), "tlc2.TLC"]
        self._runs = runs

    def check(self, configuration: Configuration) -> Outcome:
        """Run TLC to its end. Raises RuntimeError if it neither completes nor finds a violation."""
        began = time.monotonic()
        name = "Conformance" if configuration.runs else "Orders"
        with tempfile.TemporaryDirectory() as folder:
            for module in MODULES:
                shutil.copy(module, folder)
            if configuration.runs:
                Path(folder, "Runs.tla").write_text(self._runs[configuration.runs])
            Path(folder, f"{name}.cfg").write_text("\n".join(configuration.lines()))
            command = [*self._command, "-workers", "1", "-nowarning", f"{name}.tla"]
            output = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False).stdout
        return _parse(output, time.monotonic() - began)


def module_of(runs: Sequence[Sequence[Step]]) -> str:
    """Return the TLA+ module that defines the runs."""
    text = ",\n".join(_value(run) for run in runs)
    return f"---- MODULE Runs ----\nEXTENDS Sequences\nRuns == <<\n{text}\n>>\n====\n"


def _parse(output: str, seconds: float) -> Outcome:
    invariant = re.search(r"Error: Invariant (\w+) is violated", output)
    if invariant:
        violated = invariant[1]
    elif "Error: Deadlock reached" in output:
        violated = NO_PROGRESS
    elif "Model checking completed. No error has been found." in output:
        violated = ""
    else:
        raise RuntimeError(f"TLC failed:\n{output}")
    actions = re.findall(r"^State \d+: <(\w+)\(?.* line", output, re.MULTILINE)
    return Outcome(
        violated,
        actions,
        _number(r"([\d,]+) distinct states found, [\d,]+ states left", output),
        _number(r"depth of the complete state graph search is (\d+)", output),
        seconds,
        output,
    )


def _number(pattern: str, output: str) -> int:
    return int(re.findall(pattern, output)[-1].replace(",", ""))


def _set(elements: Iterable[object]) -> str:
    return "{" + ", ".join(map(str, elements)) + "}"


def _boolean(value: bool) -> str:
    return "TRUE" if value else "FALSE"


def _value(value: Any) -> str:
    """Return a value in TLA+: a dictionary as a record, a list or a tuple as a sequence."""
    if isinstance(value, dict):
        return f"[{', '.join(f'{name} |-> {_value(item)}' for name, item in value.items())}]"
    if isinstance(value, list | tuple):
        return f"<<{', '.join(map(_value, value))}>>"
    return json.dumps(value)
