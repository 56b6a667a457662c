"""Patched modules of services: a real fault in the code, with a real fix."""

import re
import subprocess
import tempfile
from pathlib import Path

from shop_cli.local.workspace import root
from shop_lab.incidents.catalogue import PatchInjection
from shop_lab.incidents.state import Inverse
from shop_lab.incidents.targets import CannotAct, Target

_FINDER = Path(__file__).parents[1] / "finder.py"
FINDER_NAME = "sitecustomize.py"
_HEADER = re.compile(r"^\+\+\+ b/(\w+(?:/\w+)+)\.py", re.MULTILINE)


class PatchMechanism:
    """Puts a patched module in front of the original one, and restarts the service."""

    def prepare(self, injection: PatchInjection, target: Target, token: str, seconds: float) -> Inverse:
        file = f"{module_of(injection)}.py"
        patched(injection)
        if file in target.modules(injection.service):
            raise CannotAct(f"another fault has replaced {file} of {injection.service}")
        return {"service": injection.service, "file": file, **target.restoring_modules(injection.service, file)}

    def act(self, injection: PatchInjection, target: Target, inverse: Inverse) -> None:
        changes: dict[str, str | None] = {FINDER_NAME: _FINDER.read_text(), inverse["file"]: patched(injection)}
        target.replace_modules(injection.service, changes)

    def undo(self, target: Target, inverse: Inverse) -> None:
        present = set(target.modules(inverse["service"]))
        if inverse["file"] in present:
            last = present <= {inverse["file"], FINDER_NAME}
            removed = [inverse["file"], *([FINDER_NAME] if last else [])]
            target.replace_modules(inverse["service"], dict.fromkeys(removed))


def module_of(injection: PatchInjection) -> str:
    """Return the full name of the module that a diff changes. Raise CannotAct unless it is one."""
    found = _HEADER.findall(injection.diff)
    if len(found) != 1:
        raise CannotAct(
            f"a patch changes one module, and its header names it as `+++ b/package/module.py`, not {found}"
        )
    return str(found[0]).replace("/", ".")


def patched(injection: PatchInjection) -> str:
    """Return the patched module. Raise CannotAct if the diff does not apply to today's."""
    path = f"{module_of(injection).replace('.', '/')}.py"
    sources = list(root().glob(f"*/*/src/{path}")) + list(root().glob(f"*/src/{path}"))
    if not sources:
        raise CannotAct(f"there is no module {path} to patch")
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / path
        copy.parent.mkdir(parents=True)
        copy.write_text(sources[0].read_text())
        command = ["git", "apply", "--whitespace=nowarn", "-"]
        applied = subprocess.run(command, cwd=folder, input=injection.diff, capture_output=True, text=True, check=False)
        if applied.returncode:
            raise CannotAct(f"the patch does not apply to {path}: {' '.join(applied.stderr.split())}")
        return copy.read_text()
