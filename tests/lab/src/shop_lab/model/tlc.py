"""Runs TLC, the model checker of TLA+."""

import re
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

MODEL = Path(__file__).with_name("Orders.tla")


DEFAULTS = {
    "Requests": "{ann}",
    "Malformed": "{}",
    "Prices": "{1}",
    "OneScope": "TRUE",
    "HasKey": "TRUE",
    "Tasks": "{w1, w2}",
    "MaxAttempts": "2",
    "Failovers": "FALSE",
    "HasManifest": "TRUE",
    "Kinds": "{}",
    "Items": "1",
    "Retention": "FALSE",
    "Purchases": "FALSE",
    "Quiet": "FALSE",
    "Without": '""',
}
"""The constants of Orders.tla, which describes them, in TLA+."""


class Configuration:
    """Constants of Orders.tla, where they are not DEFAULTS, and the invariants to check."""

    def __init__(self, *invariants: str, **constants: str) -> None:
        if unknown := constants.keys() - DEFAULTS.keys():
            raise ValueError(f"no such constants: {', '.join(unknown)}")
        self._invariants = invariants
        self._constants = DEFAULTS | constants

    def but(self, *invariants: str, **constants: str) -> "Configuration":
        """Return a configuration with other constants, and with other invariants if any are given."""
        return Configuration(*(invariants or self._invariants), **(self._constants | constants))

    def without(self, safeguard: str) -> "Configuration":
        """Return a configuration in which a safeguard is removed."""
        return self.but(Without=f'"{safeguard}"')

    def text(self) -> str:
        """Return the configuration file."""
        constants = "\n".join(f"{name} = {value}" for name, value in self._constants.items())
        # Orders have to settle once the faults end.
        return f"""SPECIFICATION Spec
CONSTANTS
{constants}
CHECK_DEADLOCK {self._constants["Quiet"]}
CONSTRAINT Bounded
SYMMETRY Symmetry
INVARIANTS {" ".join(self._invariants)}
"""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What TLC printed, and the invariant that it found violated.

    `progress` is violated if nothing follows a state that is not the end. It is empty if everything holds.
    """

    violated: str
    output: str

    @property
    def actions(self) -> list[str]:
        """The actions of the counterexample."""
        return re.findall(r"^State \d+: <(\w+)\(?.* line", self.output, re.MULTILINE)


def check(jar: Path, configuration: Configuration) -> Outcome:
    """Run the TLC in a JAR to its end. Raises RuntimeError if it neither completes nor finds a violation."""
    with tempfile.TemporaryDirectory() as folder:
        shutil.copy(MODEL, folder)
        Path(folder, "Orders.cfg").write_text(configuration.text())
        java = ["java", "-XX:+UseSerialGC", "-Xmx2g", "-cp", str(jar.resolve()), "tlc2.TLC"]
        command = [*java, "-workers", "1", "-nowarning", MODEL.name]
        output = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False).stdout
    if invariant := re.search(r"Error: Invariant (\w+) is violated", output):
        return Outcome(invariant[1], output)
    if "Error: Deadlock reached" in output:
        return Outcome("progress", output)
    if "Model checking completed. No error has been found." in output:
        return Outcome("", output)
    raise RuntimeError(f"TLC failed:\n{output}")
