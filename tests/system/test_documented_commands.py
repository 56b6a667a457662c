"""Every command in an `sh` block of a document is run: here against a running shop, or by another test or script.

Commands of `shop` and `python` within sentences exist.
"""

import asyncio
import os
import re
import shlex
import subprocess
import sys
from asyncio.subprocess import PIPE, STDOUT
from collections.abc import AsyncIterator, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
import typer.main

from shop_cli.__main__ import app
from shop_cli.local.processes import Process
from shop_kit.running_shop import RunningShop, running_process

ROOT = Path(__file__).parents[2]
LOCAL_PROGRAMS = {"shop", "python", "curl", "grpcurl", "date"}
# Commands that take too long, never end or need a cluster: the file that runs the same, and the text there that does.
RUN_ELSEWHERE = {
    r"make check": (".ci/run", "make check"),
    r"make test": (".ci/run", "make test"),
    r"make demo": ("tests/system/test_command.py", 'command("demo"'),
    r"make up": ("tests/system/test_command.py", 'command("up"'),
    r"make faults": ("Makefile", "$(MAKE) faults"),
    r"make simulate .*": ("Makefile", "$(MAKE) simulate"),
    r"python -m shop_lab.simulation .*": ("Makefile", "python -m shop_lab.simulation"),
    r"make mutants": ("Makefile", "$(MAKE) mutants"),
    r"python -m shop_lab.mutants .*": ("Makefile", "python -m shop_lab.mutants"),
    r"make kind-up deploy": (".github/workflows/e2e.yml", "make deploy"),
    r"grpcurl -cacert .*": ("tests/system/test_control_room.py", "grpcurl -cacert"),
    r"shop prove --orders 100 --kills 8": ("tests/lab/tests/test_prove.py", '"--orders", "100", "--kills", "8"'),
    r"shop prove .*": ("tests/lab/tests/test_prove.py", '"prove"'),
    r"shop load .*": ("services/_cli/tests/test_load.py", '"load"'),
    r"make model": ("Makefile", "$(MAKE) model"),
    r"make setup": ("Makefile", "check: setup"),
    r"(AUTH_MODE=enforce )?python -m employee_api": ("employee-api/tests/test_process.py", '"-m", "employee_api"]'),
    r"openapi-python-client generate .*": ("employee-api/tests/test_client.py", '"openapi-python-client", "generate"'),
    r"tests/e2e/cluster.sh": (".github/workflows/e2e.yml", "tests/e2e/cluster.sh"),
    r"kind create cluster .*": ("Makefile", "kind create cluster --config kind-config.yaml"),
    r"skaffold dev": ("tests/e2e/skaffold.sh", "skaffold dev"),
    r"charts/shop/replace-hmac-key.sh .*": ("tests/e2e/cluster.sh", "charts/shop/replace-hmac-key.sh"),
    r"helm upgrade .* --set (mesh=sidecar,)?meshPermissive=.*": ("tests/e2e/mesh.sh", "meshPermissive=true"),
    r"helm install .*": ("tests/e2e/cluster.sh", 'helm install "$release" charts/shop'),
    r"helm upgrade .*": ("tests/e2e/canary.sh", 'helm upgrade "$release" charts/shop'),
    r"python tests/e2e/rollout.py .*": ("tests/e2e/canary.sh", "python3 tests/e2e/rollout.py"),
    r"kubectl .*port-forward .*": ("charts/shop/templates/NOTES.txt", "port-forward service/"),
    r"kubectl .* (pg_dump|pg_restore) .*": ("tests/e2e/backup.sh", "documented "),
    r"kubectl .*(checkout\.db|/data/copy\.db).*": ("tests/e2e/backup.sh", "documented "),
    r"kubectl .*(wait pod|scale|rollout \w+) .*": ("tests/e2e/backup.sh", "documented "),
    r"shop reconcile .*": ("tests/e2e/backup.sh", "documented "),
    r"shop (orders|mail) (show|requeue) (ORDER|MESSAGE)": (
        "services/_cli/tests/test_commands.py",
        '"orders", "requeue"',
    ),
    r"shop orders settle .*": ("services/_cli/tests/test_commands.py", '"orders", "settle"'),
    r"shop mail list .*": ("services/_cli/tests/test_commands.py", '"mail", "list"'),
    r"kubectl .* create secret generic telemetry-headers .*": ("tests/chart/test_bring_your_own.py", "headersSecret"),
    r"kubectl create namespace shop": (".github/scripts/install_release.sh", "kubectl create namespace shop"),
    r"kubectl .* create secret generic shop-keys .*": ("tests/chart/test_gitops.py", "the_documented_secret"),
    r"kubectl .*delete secret,pvc .*": ("tests/e2e/cluster.sh", "kubectl --namespace shop delete secret,pvc"),
}


def listed() -> list[str]:
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "*.md"]
    return sorted(subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines())


def documents() -> list[str]:
    return [path for path in listed() if any(commands_of(path))]


def commands_of(document: str) -> Iterator[str]:
    """Yield the commands of the `sh` blocks, without comments, each on one line unless a quoted text has several."""
    for block in re.findall(r"^```sh\n(.*?)^```$", (ROOT / document).read_text(), re.DOTALL | re.MULTILINE):
        pending = ""
        for line in block.replace("\\\n", " ").splitlines():
            pending += re.sub(r"(^|\s+)# .*", "", line)
            if pending and is_complete(pending):
                yield pending.replace(".venv/bin/", "").strip()
                pending = ""


def mentioned_in(document: str, program: str) -> list[list[str]]:
    """Return the arguments of a program in each code span of a document's sentences."""
    prose = re.sub(r"^ *```.*?^ *```$", "", (ROOT / document).read_text(), flags=re.DOTALL | re.MULTILINE)
    return [span.split() for span in re.findall(rf"`(?:\.venv/bin/)?{program}\s([^`]+)`", prose)]


def is_complete(command: str) -> bool:
    try:
        shlex.split(command)
    except ValueError:  # a quotation is open
        return False
    return True


def is_run_elsewhere(command: str) -> bool:
    return any(re.fullmatch(pattern, command) for pattern in RUN_ELSEWHERE)


def local_commands(document: str) -> list[str]:
    return [
        command
        for command in commands_of(document)
        if command.split()[0] in LOCAL_PROGRAMS and not is_run_elsewhere(command)
    ]


@pytest.mark.parametrize("document", documents())
def test_every_documented_command_is_run_by_something(document: str) -> None:
    run_here = local_commands(document)
    if document.startswith("charts/shop/runbooks/"):  # those of a cluster are run by tests/e2e/runbooks.py
        run_here += [command for command in commands_of(document) if command.startswith("kubectl ")]
    assert [
        command for command in commands_of(document) if command not in run_here and not is_run_elsewhere(command)
    ] == []


# The changelog also names former commands.
MENTIONING = [path for path in listed() if path != "CHANGELOG.md" and mentioned_in(path, "(?:shop|python)")]


@pytest.mark.parametrize("document", MENTIONING)
def test_commands_within_sentences_exist(document: str) -> None:
    for arguments in mentioned_in(document, "shop"):
        command: Any = typer.main.get_command(app(arguments))
        words = iter(arguments)
        for word in words:
            if word.startswith("--"):
                options = {name: option for option in command.params for name in option.opts}
                assert word in {"--help", *options}
                if word in options and not options[word].is_flag:
                    next(words, None)  # its value
            elif hasattr(command, "commands") and not word.isupper():
                command = command.commands[word]
    for program, *arguments in mentioned_in(document, "python"):
        assert find_spec(arguments[0]) if program == "-m" else program == "/app" or (ROOT / program).exists()


@pytest.mark.parametrize("pattern", RUN_ELSEWHERE)
def test_a_command_that_is_run_elsewhere_is_there(pattern: str) -> None:
    file, text = RUN_ELSEWHERE[pattern]
    assert text in (ROOT / file).read_text()


def test_the_commands_of_runbooks_are_run_on_a_cluster() -> None:
    assert "tests/e2e/runbooks.py" in (ROOT / "tests/lab/e2e/incidents.sh").read_text()


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def employee_api(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Process]:
    """The employee API, on a database in a folder of its own."""
    folder = tmp_path_factory.mktemp("employee-api")
    environment = {"PATH": os.environ["PATH"], "DATABASE_URL": f"sqlite:///{folder}/employee-api.db"}
    async with running_process("employee-api", folder, environment) as process:
        yield process


@pytest.fixture
def environment(shop: RunningShop, employee_api: Process, tmp_path: Path) -> dict[str, str]:
    """Redirect documented addresses to the running processes: for `shop` and our grpcurl by variables."""
    curl_options = f'connect-to = "localhost:8000:{employee_api.address}"\nfail\nsilent\nshow-error\n'
    (tmp_path / ".curlrc").write_text(curl_options)
    grpcurl = tmp_path / "grpcurl"
    grpcurl.write_text(f"#!{sys.executable}\n" + Path(__file__).with_name("grpcurl.py").read_text())
    grpcurl.chmod(0o755)
    path = f"{tmp_path}:{Path(sys.executable).parent}:{os.environ['PATH']}"
    own = {"DATABASE_URL": employee_api.environment["DATABASE_URL"], "PATH": path, "CURL_HOME": str(tmp_path)}
    return {**os.environ, **shop.addresses, **own}


@pytest.mark.parametrize("document", [document for document in documents() if local_commands(document)])
async def test_documented_commands_succeed(environment: dict[str, str], document: str, tmp_path: Path) -> None:
    bash = await asyncio.create_subprocess_exec(
        *("bash", "-euxo", "pipefail", "-c", "\n".join(local_commands(document))),
        cwd=tmp_path,
        env=environment,
        stdin=PIPE,
        stdout=PIPE,
        stderr=STDOUT,
    )
    output, _ = await bash.communicate(b"nine brown otters swim\n")
    assert bash.returncode == 0, output.decode()
