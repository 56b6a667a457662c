"""The `shop` command: run a shop on this machine, or call a running one."""

import os
import sys
from collections.abc import Callable, Sequence
from importlib import import_module, metadata
from typing import Annotated

# gRPC reads these when it is imported; otherwise it logs a warning for every process that is started.
os.environ.setdefault("GRPC_VERBOSITY", "NONE")
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")

import typer

from chassis import errors
from chassis.proxies import ignore_proxies
from chassis.values.booleans import BOOLEANS
from shop_cli.output.visible import visible

COMMANDS = {
    "up": "Run the shop on this machine until Ctrl-C.",
    "demo": "Start a shop, place an order, show its confirmation and trace.",
    "status": "Show the running shop at a glance.",
    "traces": "Find traces of the running shop.",
    "trace": "Show a trace.",
    "logs": "Print the log of a service.",
    "kill": "Kill a service.",
    "freeze": "Freeze a service.",
    "resume": "Let a frozen service continue.",
    "restart": "Drain and restart a service.",
    "products": "Browse the catalog.",
    "cart": "Fill, show and empty a cart.",
    "order": "Order the contents of a cart.",
    "orders": "List, watch, show and settle orders, requeue dead letters.",
    "mail": "List and read order confirmations, send messages again.",
    "convert": "Convert an amount between currencies.",
    "reconcile": "Compare orders, charges, shipments and confirmations.",
    "load": "Send simulated customers to the storefront.",
    "prove": "Check that orders survive faults.",
    "faults": "List faults, start and stop them in a laboratory.",
    "incident": "Run an incident with proof, and record it.",
    "gameday": "Find faults of a hidden schedule.",
}
"""The line of each command in `shop --help`."""

# Commands whose module in shop_cli.commands has another name.
_MODULES = {"trace": "traces", **dict.fromkeys(("kill", "freeze", "resume", "restart"), "actions")}

_OF_LABORATORY = ("prove", "faults", "incident", "gameday")

_OTHER_FAILURE = 1
_INVALID_INPUT = 2
# Kinds of Unavailable that a retry does not change.
_REFUSALS = ("CALLER_NOT_ALLOWED", "TLS_FAILED")
_EXIT_CODES = ((errors.InvalidArgument, _INVALID_INPUT), (errors.Unavailable, 4), (errors.DeadlineExceeded, 4))


def main() -> None:
    """Run a command. Print an error as one line on standard error and exit with its status."""
    if not BOOLEANS.get(os.environ.get("USE_HTTP_PROXY", "").lower()):
        ignore_proxies()
    try:
        app(sys.argv[1:])()
    except errors.DomainError as error:
        details = ", ".join(f"{key}={value}" for key, value in error.metadata.items())
        typer.echo(visible(f"{error.reason}: {error.message}{f' ({details})' if details else ''}"), err=True)
        sys.exit(_exit_code(error))
    except UnicodeEncodeError:  # bytes of the command line that are not UTF-8
        typer.echo("INVALID_ARGUMENT: arguments must be UTF-8", err=True)
        sys.exit(_INVALID_INPUT)


def _exit_code(error: errors.DomainError) -> int:
    if error.reason == "UNKNOWN_SERVICE":  # the control room does not find a service, but a user has mistyped its name
        return _INVALID_INPUT
    if error.reason in _REFUSALS:
        return _OTHER_FAILURE
    return next((code for kind, code in _EXIT_CODES if isinstance(error, kind)), _OTHER_FAILURE)


def app(arguments: Sequence[str]) -> typer.Typer:
    """Return the application. It imports only the command that the arguments begin with.

    Importing all of them would take longer than most commands run.
    """
    created = typer.Typer(
        no_args_is_help=True,
        help="Run the shop on this machine, or call a running one.",
        epilog="Exit status: 0 success, 1 refused or failed, 2 invalid input, 4 no response (a retry may help).",
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
    )
    created.callback()(_options)
    completing = "_SHOP_COMPLETE" in os.environ
    for name, summary in COMMANDS.items():
        if completing or name in arguments[:1]:
            _add(created, name)
        else:
            created.command(name, help=summary)(_not_imported)
    return created


def _add(created: typer.Typer, name: str) -> None:
    command = find_command(name)
    if isinstance(command, typer.Typer):
        created.add_typer(command, name=name)
    else:
        created.command(name)(command)


def find_command(name: str) -> typer.Typer | Callable[..., None]:
    """Import a command or group of commands."""
    if name in _OF_LABORATORY:
        return _find_in_laboratory(name)
    command: typer.Typer | Callable[..., None] = getattr(
        import_module(f"shop_cli.commands.{_MODULES.get(name, name)}"), name
    )
    return command


def _find_in_laboratory(name: str) -> typer.Typer | Callable[..., None]:
    """Return a command that is an entry point of `shop-lab`. End the program if that is not installed."""
    for entry_point in metadata.entry_points(group="shop.commands", name=name):
        command: typer.Typer | Callable[..., None] = entry_point.load()
        return command
    sys.exit(f"shop {name} is part of the laboratory: install shop-lab, as make setup does in the repository")


def _not_imported() -> None:
    raise AssertionError("only the command that runs is imported")


def _print_version(value: bool) -> None:
    if value:
        typer.echo(f"shop {metadata.version('shop-cli')}")
        raise typer.Exit


def _options(
    *,
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    pass


if __name__ == "__main__":
    main()
