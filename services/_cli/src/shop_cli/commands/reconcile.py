"""`shop reconcile`: compare the records that checkout, payment, shipping and e-mail have of orders."""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Annotated, Any

import typer

from shop_cli.clients import default_address, tls_of
from shop_cli.commands.options import Json
from shop_cli.local.run_file import find_run
from shop_cli.local.workspace import discover, find
from shop_cli.output.printing import counted, print_json, print_table
from shop_cli.output.visible import visible

_SERVICES = ("checkout", "payment", "shipping", "email")
_FIELDS = ("kind", "order_id", "state", "since", "detail")

WindowHours = Annotated[float, typer.Option(min=0.01, help="Compare the orders of so many hours.")]
GraceMinutes = Annotated[float, typer.Option(min=0, help="How long the steps of an order may take.")]


def reconcile(*, window_hours: WindowHours = 24, grace_minutes: GraceMinutes = 10, as_json: Json = False) -> None:
    """Compare orders, charges, shipments and e-mails, and print the orders whose records disagree.

    Exit status: 0 if all records agree, 1 if some do not, 2 if they could not be read.
    """
    ran = _run(WINDOW_HOURS=str(window_hours), GRACE_MINUTES=str(grace_minutes))
    lines = [json.loads(line) for line in ran.stdout.splitlines()]
    mismatches = [line for line in lines if line["event"] == "mismatch"]
    if as_json:
        print_json(*({name: mismatch[name] for name in _FIELDS} for mismatch in mismatches))
    elif mismatches:
        print_table(["Kind", "Order", "State", "Since", "Detail"], map(_row, mismatches))
    last = lines[-1] if lines else {}
    summary = _summary(last) if last.get("event") == "reconciled" else _failure(last, ran.stderr)
    typer.echo(visible(summary), err=True)
    raise typer.Exit(ran.returncode)


def _run(**settings: str) -> subprocess.CompletedProcess[str]:
    """Run the reconciliation of checkout's image, with the internal addresses of the shop that commands call."""
    programs = {name: find(discover(), name) for name in _SERVICES}
    addresses = {
        program.internal_address_variable: default_address(name, internal=True) for name, program in programs.items()
    }
    certificates, server_name = tls_of(addresses["CHECKOUT_INTERNAL_ADDR"], "checkout")
    tls_folder = str(certificates.folder) if certificates else ""
    tls = {"TLS_FOLDER": tls_folder, "TLS_RELEASE": server_name.removesuffix("-checkout")}
    return subprocess.run(  # noqa: S603 - our own program
        [sys.executable, "-P", "-m", f"{programs['checkout'].module}.reconciliation"],
        env={**os.environ, **addresses, **settings, **tls, "LOG_LEVEL": "info"},
        capture_output=True,
        text=True,
        check=False,
    )


def _row(mismatch: dict[str, Any]) -> Sequence[str]:
    since = f"{datetime.fromtimestamp(mismatch['since'], UTC):%Y-%m-%d %H:%M:%S}"
    return mismatch["kind"], mismatch["order_id"], mismatch["state"], since, mismatch["detail"]


def _summary(line: dict[str, Any]) -> str:
    mails = "" if line["mails_are_read"] else "; e-mails were not compared"
    orders, charges, shipments = (counted(line[f"{name}s"], name) for name in ("order", "charge", "shipment"))
    mismatches = counted(line["mismatches"], "mismatch", "mismatches")
    return f"{orders}, {charges} and {shipments} compared, {mismatches}{mails}"


def _failure(line: dict[str, Any], stderr: str) -> str:
    if line.get("reason") == "UNAVAILABLE":  # no connection, which gRPC describes at length
        advice = (
            "was one killed or frozen? (`shop status`)" if find_run() else "no shop runs here (`shop up` starts one)"
        )
        return f"NOTHING_LISTENS: {', '.join(_SERVICES)} do not all answer: {advice}"
    return f"{line['reason']}: {line['message']}" if "reason" in line else stderr.strip()
