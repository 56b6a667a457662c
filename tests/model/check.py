"""`python tests/model/check.py TLC.jar` checks the model of orders, and that it breaks without each of its safeguards."""

import hashlib
import sys
from pathlib import Path

from configurations import HOLD, LIMITS, SAFEGUARDS
from tlc import Configuration, Outcome, check

SHA256 = "fc0a7b69b35076b4aeef54228a62fce9ca035f81a19619f5ed3f023f78c803b3"


def report(name: str, configuration: Configuration, jar: Path, expected: str) -> bool:
    """Check a configuration and print the outcome. Return whether it is the expected one."""
    outcome = check(configuration, jar)
    correct = outcome.violated == expected
    figures = f"{outcome.states:>9,} states  depth {outcome.depth:>2}  {outcome.seconds:>6.1f} s"
    print(f"{name:<46} {figures}  {describe(outcome)}", flush=True)
    if not correct:
        print(f"expected {expected or 'no violation'}:\n{outcome.output}")
    return correct


def describe(outcome: Outcome) -> str:
    """Return the outcome in words, with the actions of a counterexample."""
    return f"violates {outcome.violated}: {' '.join(outcome.actions)}" if outcome.violated else "holds"


def main(jar: Path) -> int:
    """Check every configuration. Return the exit status."""
    if hashlib.sha256(jar.read_bytes()).hexdigest() != SHA256:
        print(f"{jar} is not the expected release of TLC: its SHA-256 differs", file=sys.stderr)
        return 1
    results = [report(name, configuration, jar, "") for name, configuration in HOLD.items()]
    for name, (configuration, expected) in SAFEGUARDS.items():
        results.append(report(f"without {name}", configuration, jar, expected))
    results += [report(name, configuration, jar, expected) for name, (configuration, expected) in LIMITS.items()]
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
