"""Runs TLC, the model checker of TLA+."""

import json
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

MODEL = Path(__file__).with_name("Orders.tla")


@dataclass(frozen=True, slots=True)
class Configuration:
    """The constants of Orders.tla, which describes them, and the invariants to check.

    Attributes:
        tasks: how many.
        settles: also check that orders settle once the faults end.
        without: the safeguard that is removed.
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

    def text(self) -> str:
        """Return the configuration file."""
        constants = {
            "Requests": _set(self.requests),
            "Malformed": _set(self.malformed),
            "Prices": _set(self.prices),
            "OneScope": _boolean(self.one_scope),
            "HasKey": _boolean(self.has_key),
            "Tasks": _set(f"w{task}" for task in range(1, self.tasks + 1)),
            "MaxAttempts": self.max_attempts,
            "Failovers": _boolean(self.failovers),
            "HasManifest": _boolean(self.has_manifest),
            "Kinds": _set(map(json.dumps, self.kinds)),
            "Items": self.items,
            "Retention": _boolean(self.retention),
            "Purchases": _boolean(self.purchases),
            "Quiet": _boolean(self.settles),
            "Without": json.dumps(self.without),
        }
        return "\n".join(
            [
                "SPECIFICATION Spec",
                "CONSTANTS",
                *(f"{name} = {value}" for name, value in constants.items()),
                f"CHECK_DEADLOCK {_boolean(self.settles)}",
                "CONSTRAINT Bounded",
                "SYMMETRY Symmetry",
                f"INVARIANTS {' '.join(self.invariants)}",
            ]
        )


@dataclass(frozen=True, slots=True)
class Outcome:
    """What TLC found.

    Attributes:
        violated: the invariant; `progress` if nothing follows a state that is not the end; empty if everything holds.
        actions: of the counterexample.
        states: distinct ones.
    """

    violated: str
    actions: list[str]
    states: str
    seconds: float
    output: str


def check(jar: Path, configuration: Configuration) -> Outcome:
    """Run the TLC in a JAR to its end. Raises RuntimeError if it neither completes nor finds a violation."""
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        shutil.copy(MODEL, folder)
        Path(folder, "Orders.cfg").write_text(configuration.text())
        java = ["java", "-XX:+UseSerialGC", "-Xmx2g", "-cp", str(jar.resolve()), "tlc2.TLC"]
        command = [*java, "-workers", "1", "-nowarning", MODEL.name]
        output = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False).stdout
    actions = re.findall(r"^State \d+: <(\w+)\(?.* line", output, re.MULTILINE)
    states = re.findall(r"([\d,]+) distinct states found, [\d,]+ states left", output)
    return Outcome(_violated(output), actions, states[-1], time.monotonic() - began, output)


def _violated(output: str) -> str:
    if invariant := re.search(r"Error: Invariant (\w+) is violated", output):
        return invariant[1]
    if "Error: Deadlock reached" in output:
        return "progress"
    if "Model checking completed. No error has been found." in output:
        return ""
    raise RuntimeError(f"TLC failed:\n{output}")


def _set(elements: Iterable[object]) -> str:
    return "{" + ", ".join(map(str, elements)) + "}"


def _boolean(value: bool) -> str:
    return "TRUE" if value else "FALSE"
