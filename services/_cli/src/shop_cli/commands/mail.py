from collections.abc import Collection, Sequence
from email import message_from_string
from email.policy import default
from typing import Annotated

import typer

from shop_cli.clients import journal_client, mail_client, spool_client
from shop_cli.commands.options import InternalAddress, Json, OrderId, parse_state
from shop_cli.output.printing import (
    Columns,
    console,
    counted,
    format_time,
    print_json,
    print_list,
    print_one,
    print_table,
    state_name,
)
from shop_internal import letter_spool_pb2, mail_records_pb2, orders_pb2

mail = typer.Typer(no_args_is_help=True, help="List and read order confirmations, and send or close messages.")

_HEADERS = ("From", "To", "Subject", "Date")

MessageIds = Annotated[list[str], typer.Argument(metavar="MESSAGE...", help="Ids of the messages.")]
Unsent = Annotated[bool, typer.Option("--unsent", help="Only messages that were not sent, the longest waiting first.")]
State = Annotated[list[str] | None, typer.Option(help="Only messages in this state, such as IN_DOUBT. Repeatable.")]


@mail.command("list")
async def list_messages(
    *,
    unsent: Unsent = False,
    state: State = None,
    limit: Annotated[int, typer.Option(min=1, max=1000, help="Maximum number of orders or of unsent messages.")] = 50,
    as_json: Json = False,
    address: InternalAddress = None,
) -> None:
    """List confirmations of the latest orders, newest first. With `--unsent`, list messages that were not sent."""
    if unsent or state:
        await _list_unsent(state or [], limit, address, as_json=as_json)
    else:
        await _list_confirmations(limit, address, as_json=as_json)


@mail.command("show")
async def show_message(
    message_id: Annotated[str, typer.Argument(metavar="MESSAGE", help="Id of the message: the order id.")],
    *,
    as_json: Json = False,
    address: InternalAddress = None,
) -> None:
    """Show a message. The email service deletes a message's text once the relay has accepted the message."""
    async with spool_client(address) as spool:
        found = await spool.GetLetter(letter_spool_pb2.GetLetterRequest(letter_id=message_id))
    if as_json:
        print_json(found)
        return
    print_one(found.letter, _COLUMNS)
    console.out(f"\n{message_text(found.message)}" if found.message else "\nThe text was deleted.")


@mail.command("requeue")
async def requeue_messages(message_ids: MessageIds, *, address: InternalAddress = None) -> None:
    """Resend messages that were refused or whose outcome is unknown."""
    async with spool_client(address) as spool:
        request = letter_spool_pb2.RequeueLettersRequest(letter_ids=message_ids)
        _report(message_ids, "requeued", (await spool.RequeueLetters(request)).requeued)


@mail.command("send-again")
async def send_again(order_id: OrderId) -> None:
    """Send an order's confirmation again, even if it was already sent or has been lost."""
    async with journal_client(None) as journal, spool_client(None) as spool:
        order = (await journal.GetOrder(orders_pb2.GetOrderRequest(order_id=order_id))).order
        if state_name(orders_pb2.OrderState, order.state) in {"SHIPPED", "DONE"} and not order.unreadable:
            await spool.RequeueLetters(letter_spool_pb2.RequeueLettersRequest(letter_ids=[order_id], forget_sent=True))
        request = orders_pb2.RequeueNotificationsRequest(order_id=order_id, confirm_again=True)
        requeued = (await journal.RequeueNotifications(request)).requeued
    console.out(f"{order_id} {'requeued' if requeued else 'is not shipped'}")


@mail.command("close")
async def close_messages(
    message_ids: MessageIds,
    *,
    reason: Annotated[str, typer.Option(help="Why they need not be sent.")],
    by: Annotated[str, typer.Option(envvar="USER", help="Who closes them.")],
    address: InternalAddress = None,
) -> None:
    """Close messages that were refused or whose outcome is unknown."""
    async with spool_client(address) as spool:
        request = letter_spool_pb2.CloseLettersRequest(letter_ids=message_ids, by=by, reason=reason)
        _report(message_ids, "closed", (await spool.CloseLetters(request)).closed)


def _report(message_ids: Sequence[str], done: str, changed: Collection[str]) -> None:
    """Print what was done with each message. Exit with status 1 if some messages are unknown or in another state."""
    for message_id in message_ids:
        console.out(f"{message_id} {done if message_id in changed else 'is unknown, or neither refused nor in doubt'}")
    raise typer.Exit(0 if set(message_ids) <= set(changed) else 1)


def message_text(content: str) -> str:
    """Return a MIME message's main headers and plain text."""
    message = message_from_string(content, policy=default)
    headers = [f"{name}: {message[name]}" for name in _HEADERS if message[name]]
    body = message.get_body(("plain", "html"))
    text = body.get_content() if body is not None else ""
    return "\n".join([*headers, "", text.replace("\r", "").rstrip()])


async def _list_confirmations(limit: int, address: str | None, *, as_json: bool) -> None:
    async with journal_client(None) as journal, mail_client(address) as records:
        orders = (await journal.ListOrders(orders_pb2.ListOrdersRequest(limit=limit))).orders
        request = mail_records_pb2.FindMailsRequest(order_ids=[order.order_id for order in orders])
        found = {mail.order_id: mail for mail in (await records.FindMails(request)).mails}
    confirmed = [(order, found[order.order_id]) for order in orders if order.order_id in found]
    if as_json:
        print_json(*(mail for _, mail in confirmed))
        return
    rows = [
        [order.order_id, state_name(mail_records_pb2.MailState, mail.state), mail.reason, order.user_id,
         format_time(order.created_at)]
        for order, mail in confirmed
    ]  # fmt: skip
    print_table(["Order", "Confirmation", "Reason", "User", "Ordered"], rows)


async def _list_unsent(states: list[str], limit: int, address: str | None, *, as_json: bool) -> None:
    wanted = [parse_state(letter_spool_pb2.LetterState, name) for name in states]
    async with spool_client(address) as spool:
        request = letter_spool_pb2.ListLettersRequest(states=wanted, limit=limit)
        found = (await spool.ListLetters(request)).letters
    print_list(found, _COLUMNS, as_json=as_json)
    if not as_json:
        console.print(f"\n{counted(len(found), 'unsent message')}")


_COLUMNS: Columns[letter_spool_pb2.Letter] = {
    "Message": lambda message: message.letter_id,
    "State": lambda message: state_name(letter_spool_pb2.LetterState, message.state),
    "Recipient": lambda message: message.recipient,
    "Attempts ": lambda message: str(message.attempts),
    "Reason": lambda message: message.reason,
    "Accepted": lambda message: format_time(message.accepted_at),
    "Changed": lambda message: format_time(message.changed_at),
    "Closed": lambda message: message.closed,
}
