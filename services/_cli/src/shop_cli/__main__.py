"""The `shop` command: `shop up`, `shop demo`, and commands that talk to a running shop."""

import os
import sys

# Before anything imports gRPC, which would warn of every process that is started.
os.environ.setdefault("GRPC_VERBOSITY", "ERROR")
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")

import typer
from rich.console import Console

from chassis import errors
from shop_cli import demo, ordering, orders, shopping, up
from shop_cli.prove import command as proving

_OTHER_FAILURE = 1
_EXIT_CODES = ((errors.InvalidArgument, 2), (errors.Unavailable, 4), (errors.DeadlineExceeded, 4))

app = typer.Typer(
    no_args_is_help=True,
    help="Run the shop on this machine, or talk to one that runs.",
    epilog="Exit status: 0 done, 1 refused or failed, 2 bad input, 4 not answering (try again).",
    pretty_exceptions_enable=False,
)
app.command()(up.up)
app.command()(demo.demo)
app.command()(ordering.order)
app.command()(shopping.convert)
app.command()(proving.prove)
app.add_typer(shopping.products, name="products")
app.add_typer(shopping.cart, name="cart")
app.add_typer(orders.orders, name="orders")


def main() -> None:
    """Run a command; what goes wrong is told in one line on standard error."""
    try:
        app()
    except errors.DomainError as error:
        details = ", ".join(f"{key}={value}" for key, value in error.metadata.items())
        line = f"{error.reason}: {error.message}{f' ({details})' if details else ''}"
        Console(stderr=True, highlight=False).print(line, markup=False, soft_wrap=True)
        sys.exit(next((code for kind, code in _EXIT_CODES if isinstance(error, kind)), _OTHER_FAILURE))


if __name__ == "__main__":
    main()
