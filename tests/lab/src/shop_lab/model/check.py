"""`python -m shop_lab.model.check TLC.jar` checks the model of orders: that it is safe, and that it is not without any
of its safeguards.
"""

import hashlib
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from rich.console import Console

from shop_lab.model.configurations import HOLD, LIMITS, SAFEGUARDS
from shop_lab.model.tlc import Configuration, check

SHA256 = "fc0a7b69b35076b4aeef54228a62fce9ca035f81a19619f5ed3f023f78c803b3"
TLC_AT_ONCE = 2
CONSOLE = Console(highlight=False, soft_wrap=True)
CHECKS = {
    **{name: (configuration, "") for name, configuration in HOLD.items()},
    **{f"without {name}": safeguard for name, safeguard in SAFEGUARDS.items()},
    **LIMITS,
}
"""The configurations by name, each with what it violates, if anything."""


def report(jar: Path, name: str, configuration: Configuration, expected: str) -> bool:
    """Check a configuration and print the outcome. Return whether it is the expected one."""
    outcome = check(jar, configuration)
    result = f"violates {outcome.violated}: {' '.join(outcome.actions)}" if outcome.violated else "holds"
    CONSOLE.print(f"{name:<40} {result}")
    if outcome.violated != expected:
        CONSOLE.print(f"expected {expected or 'no violation'}:\n{outcome.output}", markup=False)
    return outcome.violated == expected


def main(jar: Path) -> int:
    """Check everything. Return the exit status."""
    if hashlib.sha256(jar.read_bytes()).hexdigest() != SHA256:
        sys.exit(f"{jar} is not the expected release of TLC: its SHA-256 differs")
    with ThreadPoolExecutor(TLC_AT_ONCE) as pool:
        results = list(pool.map(lambda name: report(jar, name, *CHECKS[name]), CHECKS))
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
