"""Commands in documents exist, and those that call a local shop or employee API succeed. Make: tests/repository."""

import asyncio
import json
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import httpx2
import pytest
import typer.main
from google.protobuf import json_format
from google.protobuf.message_factory import GetMessageClass

from shop_cli.__main__ import app, main
from shop_cli.local.processes import Process
from shop_cli.local.workspace import discover_services
from shop_kit.running_shop import RunningShop

ROOT = Path(__file__).parents[2]
CALLS_OF_A_SHOP = {"products", "cart", "order", "orders", "mail", "convert"}
PLACEHOLDERS = {"ORDER", "MESSAGE"}


def documents() -> list[str]:
    """Return the paths of all documents but the changelog, which also names former commands."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "*.md", ":!CHANGELOG.md"]
    return sorted(subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines())


def commands_of(document: str) -> Iterator[list[str]]:
    """Yield the commands of the `sh` blocks as words, without comments."""
    for block in re.findall(r"^```sh\n(.*?)^```$", (ROOT / document).read_text(), re.DOTALL | re.MULTILINE):
        pending = ""
        for line in block.replace("\\\n", " ").splitlines():
            pending += re.sub(r"(^|\s+)# .*", "", line)
            try:
                words = shlex.split(pending)
            except ValueError:  # a quotation is open
                continue
            pending = ""
            if words:
                yield [words[0].removeprefix(".venv/bin/"), *words[1:]]


def mentioned_in(document: str) -> Iterator[list[str]]:
    """Yield the commands in the code spans of a document's sentences."""
    prose = re.sub(r"^ *```.*?^ *```$", "", (ROOT / document).read_text(), flags=re.DOTALL | re.MULTILINE)
    for span in re.findall(r"`(?:\.venv/bin/)?((?:shop|python) [^`]+)`", prose):
        yield span.split()


DOCUMENTED = {document: [*commands_of(document), *mentioned_in(document)] for document in documents()}


def of_program(program: str) -> list[list[str]]:
    """Return the arguments of all documented commands of a program."""
    commands = (command for found in DOCUMENTED.values() for command in found)
    return [command[1:] for command in commands if command[0] == program]


@pytest.mark.parametrize("arguments", of_program("shop"), ids=" ".join)
def test_a_documented_command_of_the_shop_has_its_options(arguments: list[str]) -> None:
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


def test_documented_modules_and_scripts_exist() -> None:
    for program, *arguments in of_program("python"):
        assert find_spec(arguments[0]) if program == "-m" else program in {"-c", "/app"} or (ROOT / program).exists()
    scripts = {command[0] for found in DOCUMENTED.values() for command in found if "/" in command[0]}
    assert [script for script in scripts if not (ROOT / script).exists()] == []


@pytest.mark.parametrize("arguments", of_program("grpcurl"), ids=lambda arguments: arguments[-1])
def test_a_documented_call_fits_the_contract(arguments: list[str]) -> None:
    address, called = arguments[-2:]
    service, _, name = called.partition("/")
    (program,) = [program for program in discover_services() if address == f"localhost:{program.port}"]
    contract = import_module(f"shop.{program.name.replace('-', '_')}_pb2").DESCRIPTOR
    request = contract.services_by_name[service.removeprefix("shop.")].methods_by_name[name].input_type
    data = arguments[arguments.index("-d") + 1] if "-d" in arguments else "{}"
    json_format.Parse(data, GetMessageClass(request)())


async def test_documented_calls_of_a_shop_succeed(
    shop: RunningShop, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for variable, value in shop.addresses.items():
        monkeypatch.setenv(variable, value)
    complete = [words for found in DOCUMENTED for words in commands_of(found) if words[0] == "shop"]
    calls = [words for words in complete if words[1] in CALLS_OF_A_SHOP and PLACEHOLDERS.isdisjoint(words)]
    assert len(calls) > len(CALLS_OF_A_SHOP)
    for words in calls:
        monkeypatch.setattr("sys.argv", words)
        with pytest.raises(SystemExit) as exited:
            await asyncio.to_thread(main)
        assert exited.value.code in {0, None}, capsys.readouterr()


async def test_documented_requests_to_the_employee_api_succeed(shop: RunningShop) -> None:
    api: Process = shop.processes["employee-api"]
    add_user = next(words for words in of_program("python") if "add-user" in words)
    adding = await asyncio.create_subprocess_exec(
        *(sys.executable, *add_user), stdin=subprocess.PIPE, env=api.environment, cwd=shop.folder
    )
    await adding.communicate(b"nine brown otters swim\n")
    assert adding.returncode == 0
    async with httpx2.AsyncClient(timeout=300) as client:
        for words in of_program("curl"):
            url = words[-1].replace("localhost:8000", f"http://{api.address}")
            if "--json" in words:
                response = await client.post(url, json=json.loads(words[words.index("--json") + 1]))
            else:
                response = await client.get(url)
            assert response.is_success, response.text
