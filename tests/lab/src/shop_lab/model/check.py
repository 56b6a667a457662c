"""`python -m shop_lab.model.check TLC.jar` checks the model of orders: that it is safe, and that it is not without any
of its safeguards.
"""

import hashlib
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import yaml
from rich.console import Console

SHA256 = "fc0a7b69b35076b4aeef54228a62fce9ca035f81a19619f5ed3f023f78c803b3"
MODEL = Path(__file__).with_name("Orders.tla")
TLC_AT_ONCE = 2
CONSOLE = Console(highlight=False, soft_wrap=True)


def configurations() -> Iterator[tuple[str, str, str]]:
    """Yield the name of each configuration, its text, and what it violates, if anything."""
    read = yaml.safe_load(MODEL.with_name("configurations.yaml").read_text(encoding="utf-8"))
    groups, defaults = read.pop("invariants"), read.pop("defaults")
    known: dict[str, Mapping[str, Any]] = {}
    for title, group in read.items():
        for name, own in group.items():
            without = {"Without": f'"{name}"'} if title.startswith("without") else {}
            known[name] = {**defaults, **known.get(own.get("like", ""), {}), **without, **own}
            yield f"{title}: {name}", _text(known[name], groups, defaults), own.get("violates", "")


def _text(found: Mapping[str, Any], groups: Mapping[str, str], constants: Mapping[str, str]) -> str:
    lines = "\n".join(f"{name} = {found[name]}" for name in constants)
    # Orders have to settle once the faults end.
    return f"""SPECIFICATION Spec
CONSTANTS
{lines}
CHECK_DEADLOCK {found["Quiet"]}
CONSTRAINT Bounded
SYMMETRY Symmetry
INVARIANTS {" ".join(groups[group] for group in found["check"])}
"""


def check(jar: Path, text: str) -> tuple[str, str]:
    """Run TLC to its end. Return the invariant that it found violated, `progress` or nothing, and what it printed.

    Progress is violated if nothing follows a state that is not the end. Raises RuntimeError if TLC itself fails.
    """
    with tempfile.TemporaryDirectory() as folder:
        shutil.copy(MODEL, folder)
        Path(folder, "Orders.cfg").write_text(text)
        java = ["java", "-XX:+UseSerialGC", "-Xmx2g", "-cp", str(jar.resolve()), "tlc2.TLC"]
        command = [*java, "-workers", "1", "-nowarning", MODEL.name]
        output = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False).stdout
    if invariant := re.search(r"Error: Invariant (\w+) is violated", output):
        return invariant[1], output
    if "Error: Deadlock reached" in output:
        return "progress", output
    if "Model checking completed. No error has been found." in output:
        return "", output
    raise RuntimeError(f"TLC failed:\n{output}")


def report(jar: Path, name: str, text: str, expected: str) -> bool:
    """Check a configuration and print the outcome. Return whether it is the expected one."""
    violated, output = check(jar, text)
    actions = re.findall(r"^State \d+: <(\w+)\(?.* line", output, re.MULTILINE)
    result = f"violates {violated}: {' '.join(actions)}" if violated else "holds"
    CONSOLE.print(f"{name:<40} {result}")
    if violated != expected:
        CONSOLE.print(f"expected {expected or 'no violation'}:\n{output}", markup=False)
    return violated == expected


def main(jar: Path) -> int:
    """Check everything. Return the exit status."""
    if hashlib.sha256(jar.read_bytes()).hexdigest() != SHA256:
        sys.exit(f"{jar} is not the expected release of TLC: its SHA-256 differs")
    with ThreadPoolExecutor(TLC_AT_ONCE) as pool:
        results = list(pool.map(lambda found: report(jar, *found), configurations()))
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
