"""`python -m shop_lab.model.check TLC.jar` checks the model of orders: that the code conforms to it, that it is safe,
and that it is not without any of its safeguards.
"""

import hashlib
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from rich.console import Console

from shop_lab.model.configurations import CONFORMANCE, HOLD, LIMITS, SAFEGUARDS
from shop_lab.model.runs import record_runs, wrong_runs
from shop_lab.model.tlc import Configuration, Tlc, module_of

SHA256 = "fc0a7b69b35076b4aeef54228a62fce9ca035f81a19619f5ed3f023f78c803b3"
RUNS = 200
TLC_AT_ONCE = 2
CONSOLE = Console(highlight=False, soft_wrap=True)


def checks() -> Iterator[tuple[str, Configuration, str]]:
    """Yield what to check: a name, a configuration and what it violates, if anything."""
    for name, (configuration, violated) in CONFORMANCE.items():
        yield name, configuration, violated
    for name, configuration in HOLD.items():
        yield name, configuration, ""
    for name, (configuration, violated) in SAFEGUARDS.items():
        yield f"without {name}", configuration, violated
    for name, (configuration, violated) in LIMITS.items():
        yield name, configuration, violated


def report(tlc: Tlc, name: str, configuration: Configuration, expected: str) -> bool:
    """Check a configuration and print the outcome. Return whether it is the expected one."""
    outcome = tlc.check(configuration)
    result = f"violates {outcome.violated}: {' '.join(outcome.actions)}" if outcome.violated else "holds"
    CONSOLE.print(f"{name:<36} {outcome.states:>9,} states {outcome.depth:>3} deep {outcome.seconds:>5.0f} s  {result}")
    if outcome.violated != expected:
        CONSOLE.print(f"expected {expected or 'no violation'}:\n{outcome.output}", markup=False)
    return outcome.violated == expected


def main(jar: Path) -> int:
    """Check everything. Return the exit status."""
    if hashlib.sha256(jar.read_bytes()).hexdigest() != SHA256:
        sys.exit(f"{jar} is not the expected release of TLC: its SHA-256 differs")
    recorded = record_runs(RUNS)
    runs = {"recorded": recorded, **wrong_runs(recorded)}
    tlc = Tlc(jar, {name: module_of(steps) for name, steps in runs.items()})
    with ThreadPoolExecutor(TLC_AT_ONCE) as pool:
        results = list(pool.map(lambda check: report(tlc, *check), checks()))
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
