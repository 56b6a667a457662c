import math
import time
from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Annotated

import grpc
import typer

from chassis.errors import DomainError
from chassis.rpc.client import channel
from checkout_service.reconciliation.reader import Records, open_reader
from checkout_service.reconciliation.rules import Mismatch
from shop_cli.clients import TIMEOUT_SECONDS, default_address, tls_of
from shop_cli.commands.options import Json, async_command
from shop_cli.local.run_file import find_run
from shop_cli.output.printing import counted, print_json, print_table
from shop_cli.output.visible import visible

_DISAGREE, _NOT_READ = 1, 2

WindowHours = Annotated[float, typer.Option(min=0.01, help="Compare the orders of this many hours.")]
GraceMinutes = Annotated[float, typer.Option(min=0, help="How long an order may take to complete.")]


@async_command
async def reconcile(*, window_hours: WindowHours = 24, grace_minutes: GraceMinutes = 10, as_json: Json = False) -> None:
    """Compare orders, charges, shipments and confirmations, and print the orders whose records disagree.

    Exit status: 0 if all records agree, 1 if some do not, 2 if they could not be read.
    """
    try:
        async with open_reader(_channel) as reader:
            records = await reader.read(time.time() - window_hours * 3600)
    except DomainError as error:
        typer.echo(visible(_failure(error)), err=True)
        raise typer.Exit(_NOT_READ) from error
    mismatches = records.mismatches(settled_before=time.time() - grace_minutes * 60)
    if as_json:
        print_json(*map(asdict, mismatches))
    elif mismatches:
        print_table(["Kind", "Order", "State", "Since", "Detail"], map(_row, mismatches))
    typer.echo(_summary(records, len(mismatches)), err=True)
    raise typer.Exit(_DISAGREE if mismatches else 0)


def _channel(name: str, service: str, method: str) -> grpc.aio.Channel:
    address = default_address(name, internal=True)
    return channel(address, service, timeout_seconds=TIMEOUT_SECONDS, retryable=[method], **tls_of(address, name))


def _row(mismatch: Mismatch) -> Sequence[str]:
    since = f"{datetime.fromtimestamp(mismatch.since, UTC):%Y-%m-%d %H:%M:%S}"
    return mismatch.kind, mismatch.order_id, mismatch.state, since, mismatch.detail


def _summary(records: Records, mismatches: int) -> str:
    mails = "" if records.complete_since.confirmations < math.inf else "; e-mails were not compared"
    orders, charges = counted(len(records.orders), "order"), counted(records.charges, "charge")
    compared = f"{orders}, {charges} and {counted(records.shipments, 'shipment')} compared"
    return f"{compared}, {counted(mismatches, 'mismatch', 'mismatches')}{mails}"


def _failure(error: DomainError) -> str:
    if error.reason == "UNAVAILABLE":  # replace gRPC's own message, which is too long
        advice = (
            "was one killed or frozen? (`shop status`)" if find_run() else "no shop runs here (`shop up` starts one)"
        )
        return f"NOTHING_LISTENS: checkout, payment, shipping, email do not all answer: {advice}"
    return f"{error.reason}: {error.message}"
