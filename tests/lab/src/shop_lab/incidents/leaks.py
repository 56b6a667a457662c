"""Words of faults in what investigators read: a name that gives the answer away makes an incident worthless."""

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from shop_lab.incidents.catalogue import Fault
from shop_lab.incidents.cluster import Cluster
from shop_lab.incidents.record import TRUTH
from shop_lab.incidents.targets import CannotAct

_KINDS = ("configmaps", "pods", "deployments", "statefulsets", "services", "jobs", "networkpolicies", "roles", "events")
_LINES = 500


def find_leaks(texts: Mapping[str, str], fault: Fault) -> Iterator[str]:
    """Yield which texts, by name, contain an id, a title or a label of the fault, also in their names."""
    words = {word: _pattern(word) for word in sorted(fault.words)}
    for name, text in texts.items():
        yield from (f"{name} contains {word!r}" for word, pattern in words.items() if pattern.search(f"{name}\n{text}"))


def texts_in(folder: Path) -> dict[str, str]:
    """Return all files below a folder but the truth, by path."""
    paths = [path for path in sorted(folder.rglob("*")) if path.is_file() and path.name != TRUTH]
    return {str(path.relative_to(folder)): path.read_text(encoding="utf-8", errors="replace") for path in paths}


def texts_of(cluster: Cluster) -> dict[str, str]:
    """Return the namespace's objects, names of Secrets alone, and the last lines of its pods."""
    commands: dict[str, Sequence[str]] = {kind: ("get", kind, "--output=yaml") for kind in _KINDS}
    commands["secrets"] = ("get", "secrets", "--output=name")
    for pod in cluster.kubectl("get", "pods", "--output=name").split():
        commands[pod] = ("logs", pod, "--all-containers", f"--tail={_LINES}")
    found = {}
    for name, command in commands.items():
        with suppress(CannotAct):  # a pod that never started has no log
            found[name] = cluster.kubectl(*command)
    return found


def _pattern(word: str) -> re.Pattern[str]:
    # A label such as `CPU` is a word that everyone uses: only a text that is nothing else gives it away.
    is_phrase = not word.isalpha()
    escaped = re.escape(word)
    return re.compile(rf"\b{escaped}\b" if is_phrase else rf'(^|"){escaped}("|$)', re.IGNORECASE | re.MULTILINE)
