"""Commands start fast. The tests check imports instead of times, which depend on the machine."""

import os
import signal
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest

from shop_cli.__main__ import COMMANDS, app, main
from shop_kit.signals import interruptible

_PRINT_IMPORTS = """
import sys
from shop_cli.__main__ import main
for command in sys.argv[1:]:
    sys.argv[1:] = command.split()
    try:
        main()
    except SystemExit:
        pass
print("imported", *sys.modules)
"""
# These modules take more than 20 ms to import, and only some commands need them.
HEAVY = {
    "email_service", "jinja2", "opentelemetry.sdk", "psycopg", "pydantic", "shop_cli.local.processes",
    "shop_cli.prove", "sqlalchemy", "starlette", "structlog", "uvicorn",
}  # fmt: skip
NOT_FOR_HELP = HEAVY | {"asyncio", "google.protobuf", "grpc", "rich"}


def imports(*commands: str) -> set[str]:
    """Run commands in one process, and return the modules that it has imported."""
    command = [sys.executable, "-c", _PRINT_IMPORTS, *commands]
    ran = subprocess.run(command, capture_output=True, text=True, check=True)
    return set(ran.stdout.splitlines()[-1].split()[1:])


def test_help_and_version_import_no_client() -> None:
    assert imports("--help", "--version", "") & NOT_FOR_HELP == set()


def test_a_command_that_calls_a_service_imports_nothing_heavy(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PRODUCT_CATALOG", "CART", "CHECKOUT", "CHECKOUT_INTERNAL", "EMAIL_INTERNAL"):
        monkeypatch.setenv(f"{name}_ADDR", f"127.0.0.1:{port}")
    imported = imports("products list", "cart show ada", "order ada", "orders list", "mail list --unsent")
    assert "shop_cli.clients" in imported
    assert imported & HEAVY == set()


@pytest.mark.parametrize(("setting", "kept"), [("", False), ("0", False), ("no", False), ("1", True), ("True", True)])
def test_proxies_are_ignored_unless_the_setting_of_services_asks_for_them(
    monkeypatch: pytest.MonkeyPatch, setting: str, kept: bool
) -> None:
    monkeypatch.setattr(os, "environ", {**os.environ, "USE_HTTP_PROXY": setting, "HTTP_PROXY": "http://127.0.0.1:9"})
    monkeypatch.setattr(sys, "argv", ["shop", "--version"])
    with pytest.raises(SystemExit):
        main()
    assert ("HTTP_PROXY" in os.environ) is kept


def shop(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "shop_cli", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, env=environment)


def test_summaries_are_not_cut_at_eighty_columns() -> None:
    printed = shop("--help", COLUMNS="80").stdout
    assert [summary for summary, _ in COMMANDS.values() if summary not in printed] == []


def test_an_unknown_command_is_refused_with_a_similar_one_and_the_version_is_that_of_the_package() -> None:
    refused = shop("prodcts")
    assert (refused.returncode, "Did you mean 'products'?" in refused.stderr) == (2, True)
    assert shop("--version").stdout == f"shop {metadata.version('shop-cli')}\n"


def test_ctrl_c_while_modules_are_imported_is_no_traceback(tmp_path: Path) -> None:
    (tmp_path / "typer.py").write_text("raise KeyboardInterrupt")
    ran = subprocess.run(
        interruptible("-m", "shop_cli", "up"),
        capture_output=True, text=True, check=False, env={"PYTHONPATH": str(tmp_path)},
    )  # fmt: skip
    assert (ran.returncode, ran.stdout, ran.stderr) == (-signal.SIGINT, "", "")


def test_completion_imports_all_listed_commands_and_offers_those_of_a_group() -> None:
    ran = subprocess.run(
        [sys.executable, "-c", "import sys; sys.argv[0] = 'shop'; from shop_cli.__main__ import main; main()"],
        capture_output=True, text=True, check=False,
        env={"_SHOP_COMPLETE": "complete_bash", "COMP_WORDS": "shop products ", "COMP_CWORD": "2"},
    )  # fmt: skip
    assert "search" in ran.stdout


def test_without_the_laboratory_its_commands_say_in_one_line_where_to_get_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(metadata, "entry_points", lambda **_: ())
    with pytest.raises(SystemExit):
        app(["prove"])(["prove"])
    assert "`make setup`" in capsys.readouterr().err
