"""The `shop` command: run a shop on this machine, or call a running one."""

import inspect
import io
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from importlib import import_module, metadata
from typing import Annotated, Any

# Set these before gRPC is imported. Otherwise, gRPC logs a warning whenever this process starts a child process.
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
    "status": ("Show the running shop at a glance.", ".running"),
    "traces": ("Find traces of the running shop.", ".running"),
    "trace": ("Show a trace.", ".running"),
    "logs": ("Print the log of a service.", ".running"),
    "kill": ("Kill a service.", ".running"),
    "freeze": ("Freeze a service.", ".running"),
    "resume": ("Let a frozen service continue.", ".running"),
    "restart": ("Drain and restart a service.", ".running"),
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

_OTHER_FAILURE, _INVALID_INPUT, _NO_RESPONSE = 1, 2, 4
# Unavailable errors with these reasons are permanent, so their exit status must not suggest a retry.
_REFUSALS = ("CALLER_NOT_ALLOWED", "TLS_FAILED")


def main() -> None:
    """Run a command. If it raises a DomainError, print one line to standard error and exit with the matching status."""
    if not BOOLEANS.get(os.environ.get("USE_HTTP_PROXY", "").lower()):
        ignore_proxies()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # escape characters that the terminal can't encode
    try:
        app(sys.argv[1:])()
    except errors.DomainError as error:
        details = ", ".join(f"{key}={value}" for key, value in error.metadata.items())
        typer.echo(visible(f"{error.reason}: {error.message}{f' ({details})' if details else ''}"), err=True)
        sys.exit(_exit_code(error))
    except OSError as error:  # such as a full disk: output and data are files
        typer.echo(f"{type(error).__name__}: {error}", err=True)
        sys.exit(_OTHER_FAILURE)
    except UnicodeEncodeError:
        typer.echo("INVALID_ARGUMENT: arguments must be UTF-8", err=True)
        sys.exit(_INVALID_INPUT)


def _exit_code(error: errors.DomainError) -> int:
    if error.reason == "UNKNOWN_SERVICE" or isinstance(error, errors.InvalidArgument):
        return _INVALID_INPUT
    may_succeed_later = isinstance(error, errors.Unavailable | errors.DeadlineExceeded)
    return _NO_RESPONSE if may_succeed_later and error.reason not in _REFUSALS else _OTHER_FAILURE


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
            created.command(name, help=summary)(lambda: None)
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
    command: typer.Typer | Callable[..., Any] = getattr(import_module(module, "shop_cli.commands"), name)
    if not isinstance(command, typer.Typer):
        created.command(name)(_synchronous(command))
        return
    registered: Any
    for registered in filter(None, (command.registered_callback, *command.registered_commands)):
        registered.callback = _synchronous(registered.callback)
    created.add_typer(command, name=name)


def _synchronous(command: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap an async command in a synchronous function, because Typer can't run async functions."""
    if not inspect.iscoroutinefunction(command):
        return command
    import asyncio  # noqa: PLC0415 - importing asyncio takes 30 ms, and `shop --help` doesn't need it

    return wraps(command)(lambda *args, **kwargs: asyncio.run(command(*args, **kwargs)))


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
