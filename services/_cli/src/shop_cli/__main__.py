"""The `shop` command: run a shop on this machine, or call a running one."""

import os
import sys

# gRPC reads these when it is imported; otherwise it logs a warning for every process that is started.
os.environ.setdefault("GRPC_VERBOSITY", "ERROR")
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")

import typer
from rich.console import Console

from chassis import errors
from shop_cli.commands.cart import cart
from shop_cli.commands.convert import convert
from shop_cli.commands.demo import demo
from shop_cli.commands.letters import letters
from shop_cli.commands.load import load
from shop_cli.commands.order import order
from shop_cli.commands.orders import orders
from shop_cli.commands.products import products
from shop_cli.commands.prove import prove
from shop_cli.commands.reconcile import reconcile
from shop_cli.commands.up import up

_OTHER_FAILURE = 1
_EXIT_CODES = ((errors.InvalidArgument, 2), (errors.Unavailable, 4), (errors.DeadlineExceeded, 4))

app = typer.Typer(
    no_args_is_help=True,
    help="Run the shop on this machine, or call a running one.",
    epilog="Exit status: 0 success, 1 refused or failed, 2 invalid input, 4 no response (a retry may help).",
    pretty_exceptions_enable=False,
)
for command in (up, demo, order, convert, reconcile, load, prove):
    app.command()(command)
for group, name in ((products, "products"), (cart, "cart"), (orders, "orders"), (letters, "letters")):
    app.add_typer(group, name=name)


def main() -> None:
    """Run a command. Print an error as one line on standard error and exit with its status."""
    try:
        app()
    except errors.DomainError as error:
        details = ", ".join(f"{key}={value}" for key, value in error.metadata.items())
        line = f"{error.reason}: {error.message}{f' ({details})' if details else ''}"
        Console(stderr=True, highlight=False).print(line, markup=False, soft_wrap=True)
        sys.exit(next((code for kind, code in _EXIT_CODES if isinstance(error, kind)), _OTHER_FAILURE))


if __name__ == "__main__":
    main()
