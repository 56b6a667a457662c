"""`shop mail`: the order confirmations of a shop."""

from collections.abc import Sequence
from typing import Annotated

import typer

from shop_cli.clients import journal_client, mail_client
from shop_cli.commands.options import InternalAddress, Json, async_command
from shop_cli.output.mail_text import mail_text
from shop_cli.output.printing import console, format_time, print_json, print_table
from shop_internal import mail_records_pb2, orders_pb2

mail = typer.Typer(no_args_is_help=True, help="List order confirmations and read them.")

_PREFIX = "MAIL_STATE_"
Limit = Annotated[int, typer.Option(min=1, max=1000, help="Maximum number of orders whose e-mails are listed.")]
CheckoutAddress = Annotated[
    str | None,
    typer.Option(metavar="HOST:PORT", help="Address of checkout's internal services. Default: like --address."),
]


@mail.command("list")
@async_command
async def list_mails(
    *,
    limit: Limit = 20,
    as_json: Json = False,
    address: InternalAddress = None,
    checkout_address: CheckoutAddress = None,
) -> None:
    """List the confirmations of the latest orders, newest first."""
    async with journal_client(checkout_address) as journal, mail_client(address) as records:
        orders = (await journal.ListOrders(orders_pb2.ListOrdersRequest(limit=limit))).orders
        ids = [order.order_id for order in orders]
        found = (await records.FindMails(mail_records_pb2.FindMailsRequest(order_ids=ids))).mails
    mails = {each.order_id: each for each in found}
    if as_json:
        print_json(*(mails[order_id] for order_id in ids if order_id in mails))
        return
    rows = [_row(order, mails[order.order_id]) for order in orders if order.order_id in mails]
    print_table(["Order", "E-mail", "Reason", "User", "Ordered"], rows)


@mail.command("show")
@async_command
async def show_mail(
    order_id: Annotated[str, typer.Argument(metavar="ORDER", help="Id of the order.")],
    *,
    as_json: Json = False,
    address: InternalAddress = None,
) -> None:
    """Show the confirmation of an order. A spool deletes its text when the relay has accepted it."""
    async with mail_client(address) as records:
        found = await records.GetMail(mail_records_pb2.GetMailRequest(order_id=order_id))
    if as_json:
        print_json(found)
        return
    state = _state_name(found.mail)
    console.out(mail_text(found.message) if found.message else f"{state}: its text was deleted", highlight=False)


def _row(order: orders_pb2.Order, found: mail_records_pb2.Mail) -> Sequence[str]:
    return order.order_id, _state_name(found), found.reason, order.user_id, format_time(order.created_at)


def _state_name(found: mail_records_pb2.Mail) -> str:
    return mail_records_pb2.MailState.Name(found.state).removeprefix(_PREFIX)
