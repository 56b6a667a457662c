"""The `shop` command: run a shop on this machine, or call a running one."""

import io
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module, metadata
from typing import Annotated

# gRPC reads these variables on import. Without them, gRPC logs a warning whenever this process starts a child.
os.environ.setdefault("GRPC_VERBOSITY", "NONE")
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")

import typer

from chassis import errors
from chassis.proxies import ignore_proxies
from chassis.values.booleans import BOOLEANS
from shop_cli.output.visible import visible

COMMANDS = {
    "up": ("Run the shop on this machine until Ctrl-C.", ".up"),
    "demo": ("Start a shop, place an order, show its confirmation and trace.", ".demo"),
    "status": ("Show the running shop at a glance.", ".status"),
    "traces": ("Find traces of the running shop.", ".traces"),
    "trace": ("Show a trace.", ".traces"),
    "logs": ("Print the log of a service.", ".logs"),
    "kill": ("Kill a service.", ".actions"),
    "freeze": ("Freeze a service.", ".actions"),
    "resume": ("Let a frozen service continue.", ".actions"),
    "restart": ("Drain and restart a service.", ".actions"),
    "products": ("Browse the catalog.", ".products"),
    "cart": ("Fill, show and empty a cart.", ".cart"),
    "order": ("Order the contents of a cart.", ".order"),
    "orders": ("List, watch, show and settle orders, requeue dead letters.", ".orders"),
    "mail": ("List and read order confirmations, send messages again.", ".mail"),
    "convert": ("Convert an amount between currencies.", ".convert"),
    "reconcile": ("Compare orders, charges, shipments and confirmations.", ".reconcile"),
    "load": ("Send simulated customers to the storefront.", ".load"),
}
"""Maps each command to its summary in `shop --help` and its module, relative to `shop_cli.commands`.

Plugins add their own mappings, with absolute module names, through entry points in the group `shop_cli.commands`.
"""

_OTHER_FAILURE = 1
_INVALID_INPUT = 2
# Unavailable errors with these reasons are permanent, so a retry doesn't help.
_REFUSALS = ("CALLER_NOT_ALLOWED", "TLS_FAILED")
_EXIT_CODES = ((errors.InvalidArgument, _INVALID_INPUT), (errors.Unavailable, 4), (errors.DeadlineExceeded, 4))


def main() -> None:
    """Run a command. If it raises a DomainError, print one line on standard error and exit with the matching status."""
    if not BOOLEANS.get(os.environ.get("USE_HTTP_PROXY", "").lower()):
        ignore_proxies()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # for characters that the terminal's encoding lacks
    try:
        app(sys.argv[1:])()
    except errors.DomainError as error:
        details = ", ".join(f"{key}={value}" for key, value in error.metadata.items())
        typer.echo(visible(f"{error.reason}: {error.message}{f' ({details})' if details else ''}"), err=True)
        sys.exit(_exit_code(error))
    except UnicodeEncodeError:
        typer.echo("INVALID_ARGUMENT: arguments must be UTF-8", err=True)
        sys.exit(_INVALID_INPUT)


def _exit_code(error: errors.DomainError) -> int:
    if error.reason == "UNKNOWN_SERVICE":  # the user mistyped an argument
        return _INVALID_INPUT
    if error.reason in _REFUSALS:
        return _OTHER_FAILURE
    return next((code for kind, code in _EXIT_CODES if isinstance(error, kind)), _OTHER_FAILURE)


def app(arguments: Sequence[str]) -> typer.Typer:
    """Return the Typer application, importing only the command that the first argument names.

    Importing all commands would take longer than most commands take to run.
    """
    created = typer.Typer(
        no_args_is_help=True,
        help="Run the shop on this machine, or call a running one.",
        epilog="Exit status: 0 success, 1 refused or failed, 2 invalid input, 4 no response (a retry may help).",
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
    )
    created.callback()(_options)
    wanted = arguments[0] if arguments else ""
    completing = "_SHOP_COMPLETE" in os.environ
    for name, (summary, module) in _find_commands(wanted).items():
        if completing or name == wanted:
            _add(created, name, module)
        else:
            created.command(name, help=summary)(_not_imported)
    return created


def _find_commands(wanted: str) -> Mapping[str, tuple[str, str]]:
    """Return this package's commands. If `wanted` is not among them, add the plugins' commands."""
    found = dict(COMMANDS)
    if wanted not in found:
        plugins = metadata.entry_points(group="shop_cli.commands")
        for plugin in plugins:
            found |= plugin.load()
        if not plugins and wanted.isalnum():
            typer.echo("The laboratory's commands, such as `shop prove`, need `make setup`.", err=True)
    return found


def _add(created: typer.Typer, name: str, module: str) -> None:
    command: typer.Typer | Callable[..., None] = getattr(import_module(module, "shop_cli.commands"), name)
    if isinstance(command, typer.Typer):
        created.add_typer(command, name=name)
    else:
        created.command(name)(command)


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
