"""Runs the kubectl commands of the chart's runbooks on a release: each must succeed.

`python runbooks.py NAMESPACE RELEASE` puts names of the release's objects for what the pages write in capitals, such as
POD. Commands that need what not every cluster has are printed as left out.
"""

import re
import subprocess
import sys
from pathlib import Path

RUNBOOKS = Path(__file__).resolve().parents[2] / "charts" / "shop" / "runbooks"
LEFT_OUT = {
    r"kubectl .*\btop .*": "needs metrics-server",
    r"kubectl .*patch pvc .*": "needs a storage class that expands volumes",
    r"kubectl .*port-forward .*": "does not end",
}
LACKING = {
    "no rollout history found": "needs an earlier release",
    'doesn\'t have a resource type "certificates"': "needs cert-manager",
}
"""What a command says that finds no fault in it, but that the release lacks something."""
_FIRST_NAME = "--output name | head -1 | cut -d / -f 2"
_UNDO = {"kubectl cordon NODE": "kubectl uncordon NODE"}


def commands() -> list[tuple[str, str]]:
    """Return page and text of each kubectl command."""
    found = []
    for page in sorted(RUNBOOKS.glob("*.md")):
        for block in re.findall(r"^```sh\n(.*?)^```$", page.read_text(), re.DOTALL | re.MULTILINE):
            lines = block.replace("\\\n", " ").splitlines()
            found += [(page.stem, line) for line in lines if line.startswith("kubectl")]
    return found


def main(namespace: str, release: str) -> int:
    """Run all commands; return the number of those that failed."""
    failed = 0
    for page, text in commands():
        reason = next((why for pattern, why in LEFT_OUT.items() if re.fullmatch(pattern, text)), None)
        if reason is None:
            failed += not run(text, namespace, release)
            if text in _UNDO:
                failed += not run(_UNDO[text], namespace, release)
        else:
            print(f"left out {page}: {text}: {reason}")  # noqa: T201
    return failed


def run(text: str, namespace: str, release: str) -> bool:
    """Run one command; return whether it succeeded."""
    text = text.replace("--namespace shop", f"--namespace {namespace}").replace("shop-", f"{release}-")
    pods = f"kubectl --namespace {namespace} get pods --selector app.kubernetes.io/name=ad"
    text = text.replace("PID", "-1").replace("POD", f"$({pods} {_FIRST_NAME})")
    text = text.replace("NODE", f"$(kubectl get nodes {_FIRST_NAME})")
    result = subprocess.run(["bash", "-c", text], capture_output=True, text=True, timeout=180, check=False)
    lacking = next((why for said, why in LACKING.items() if said in result.stderr), "")
    finds_nothing = "| grep" in text and result.returncode == 1 and not result.stderr
    succeeded = result.returncode == 0 or bool(lacking) or finds_nothing
    print("ok     " if succeeded else "FAILED ", text, lacking if succeeded else result.stderr, flush=True)  # noqa: T201
    return succeeded


if __name__ == "__main__":
    sys.exit(min(main(*sys.argv[1:]), 1))
