"""The script that replaces an HMAC key, with a kubectl that has one Secret and records the keys of each rollout."""

import os
import subprocess
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "charts/shop/replace-hmac-key.sh"
OLD = "o" * 32
KUBECTL = """#!/bin/sh
case "$*" in
  "--namespace shop get secret shop-$SERVICE --output jsonpath={.data.$VARIABLE}") base64 <secret ;;
  "--namespace shop patch secret shop-$SERVICE --patch-file /dev/stdin")
    sed 's/.*"'$VARIABLE'": "\\(.*\\)".*/\\1/' | tr -d '\\n' >secret ;;
  "--namespace shop rollout restart deployment/shop-$SERVICE") cat secret >>rollouts; echo >>rollouts ;;
  "--namespace shop rollout status "*"deployment/shop-$SERVICE") ;;
  "--namespace shop get pod --selector app.kubernetes.io/instance=shop,app.kubernetes.io/name=$SERVICE "*)
    echo pod/one; echo pod/two ;;
  "--namespace shop wait --for=delete --timeout=10m pod/one pod/two") echo ended >>rollouts ;;
  *) echo "unexpected: $*" >&2; exit 1 ;;
esac
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "kubectl").write_text(KUBECTL)
    (tmp_path / "kubectl").chmod(0o755)
    (tmp_path / "secret").write_text(OLD)
    return tmp_path


def run(
    folder: Path, step: str, service: str = "payment", variable: str = "HMAC_KEY"
) -> subprocess.CompletedProcess[str]:
    names = {"SERVICE": service, "VARIABLE": variable}
    environment = {"PATH": f"{folder}:{os.environ['PATH']}", **names}
    command = [str(SCRIPT), step, service]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


def rollouts(folder: Path) -> list[list[str]]:
    """Return the keys with which each rollout starts. Before the next one, the old pods have ended."""
    lines = (folder / "rollouts").read_text().splitlines()
    assert set(lines[1::2]) == {"ended"}
    return [keys.split(",") for keys in lines[::2]]


@pytest.mark.parametrize(("service", "variable"), [("payment", "HMAC_KEY"), ("storefront", "SESSION_KEY")])
def test_every_replica_accepts_the_new_key_before_one_uses_it(folder: Path, service: str, variable: str) -> None:
    assert run(folder, "begin", service, variable).returncode == 0
    accepting, using = rollouts(folder)
    new = using[0]
    assert (accepting, using) == ([OLD, new], [new, OLD])
    assert len(new) == 64


def test_the_old_key_is_removed_at_the_end(folder: Path) -> None:
    run(folder, "begin")
    assert run(folder, "finish").returncode == 0
    *_, (new, _), last = rollouts(folder)
    assert last == [new]


@pytest.mark.parametrize(("step", "keys"), [("begin", f"{OLD},{OLD}"), ("finish", OLD), ("abort", OLD)])
def test_a_step_out_of_order_changes_nothing(folder: Path, step: str, keys: str) -> None:
    (folder / "secret").write_text(keys)
    refused = run(folder, step)
    assert refused.returncode == 1
    assert OLD not in refused.stderr
    assert (folder / "secret").read_text() == keys
