import time
from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Annotated

import grpc
import typer

from chassis.errors import DomainError
from chassis.rpc.client import channel
from checkout_service.reconciliation.reader import Comparison, open_reader
from checkout_service.reconciliation.rules import Mismatch
from shop_cli.clients import TIMEOUT_SECONDS, default_address, journal_client, tls_of
from shop_cli.commands.options import Json, OrderId, finite
from shop_cli.output.printing import counted, print_json, print_table
from shop_cli.output.visible import visible
from shop_internal import orders_pb2

_DISAGREE, _NOT_READ = 1, 2

reconcile = typer.Typer(invoke_without_command=True)


@reconcile.callback()
async def compare(
    context: typer.Context,
    *,
    window_hours: Annotated[float, typer.Option(min=0.01, callback=finite, help="Compare this many hours.")] = 24,
    grace_minutes: Annotated[float, typer.Option(min=0, callback=finite, help="How long an order may take.")] = 10,
    as_json: Json = False,
) -> None:
    """Compare orders, charges, shipments and confirmations, and print the orders whose records disagree.

    Exit status: 0 if all records agree, 1 if some do not, 2 if they could not be read.
    """
    if context.invoked_subcommand:
        return
    try:
        async with open_reader(_channel) as reader:
            now = time.time()
            found = await reader.compare(now - window_hours * 3600, now - grace_minutes * 60)
            if as_json:
                print_json(*map(asdict, found.mismatches))
            elif found.mismatches:
                print_table(["Kind", "Order", "State", "Since", "Detail"], map(_row, found.mismatches))
            await reader.record(found)
    except DomainError as error:
        typer.echo(visible(_failure(error)), err=True)
        raise typer.Exit(_NOT_READ) from error
    typer.echo(_summary(found), err=True)
    raise typer.Exit(_DISAGREE if found.mismatches else 0)


@reconcile.command("accept")
async def accept(
    order_id: OrderId,
    kind: Annotated[str, typer.Argument(metavar="KIND", help="How its records disagree, such as NOT_MAILED.")],
    *,
    reason: Annotated[str, typer.Option(help="Why they may disagree.")],
    by: Annotated[str, typer.Option(envvar="USER", help="Who accepts it.")],
) -> None:
    """Close a mismatch even though the records still disagree, so that it is no longer reported."""
    async with journal_client(None) as journal:
        request = orders_pb2.AcceptMismatchRequest(order_id=order_id, kind=kind.upper(), by=by, reason=reason)
        await journal.AcceptMismatch(request)


def _channel(name: str, service: str, method: str) -> grpc.aio.Channel:
    address = default_address(name, internal=True)
    return channel(address, service, timeout_seconds=TIMEOUT_SECONDS, retryable=[method], **tls_of(address, name))


def _row(mismatch: Mismatch) -> Sequence[str]:
    since = f"{datetime.fromtimestamp(mismatch.since, UTC):%Y-%m-%d %H:%M:%S}"
    return mismatch.kind, mismatch.order_id, mismatch.state, since, mismatch.detail


def _summary(found: Comparison) -> str:
    unread = "" if found.mails_are_read else "; e-mails were not compared"
    note = unread if found.orders else "; there were no orders to compare"
    orders = f"{counted(found.orders, 'order')} ({found.declined} not charged, {found.in_progress} in progress)"
    compared = f"{orders}, {counted(found.charges, 'charge')} and {counted(found.shipments, 'shipment')} compared"
    return f"{compared}, {counted(len(found.mismatches), 'mismatch', 'mismatches')}{note}"


def _failure(error: DomainError) -> str:
    if error.reason == "UNAVAILABLE":  # replace gRPC's own message, which is too long
        return "NOTHING_LISTENS: checkout, payment, shipping, email do not all answer: is the shop up? (`shop status`)"
    return f"{error.reason}: {error.message}"
