"""`shop letters`: order confirmations in the email service's spool."""

from typing import Annotated

import typer

from shop_cli.clients import spool_client
from shop_cli.commands.options import InternalAddress, Json, async_command
from shop_cli.output.printing import console, format_time, print_json, print_table
from shop_internal import letter_spool_pb2

letters = typer.Typer(no_args_is_help=True, help="Inspect order confirmations that were not sent, and send them again.")

_PREFIX = "LETTER_STATE_"
State = Annotated[list[str] | None, typer.Option(help="Only letters in this state, such as IN_DOUBT. Repeatable.")]
Limit = Annotated[int, typer.Option(min=1, max=1000, help="Maximum number of letters.")]


@letters.command("list")
@async_command
async def list_letters(
    *, state: State = None, limit: Limit = 50, as_json: Json = False, address: InternalAddress = None
) -> None:
    """List letters that were not sent, those that waited longest first."""
    states = [_parse_state(each) for each in state or ()]
    async with spool_client(address) as spool:
        request = letter_spool_pb2.ListLettersRequest(states=states, limit=limit)
        found = (await spool.ListLetters(request)).letters
    if as_json:
        print_json(*found)
        return
    print_table(["Letter", "State", "Recipient", "Attempts ", "Reason", "Accepted", "Changed"], map(_row, found))
    console.print(f"\n{len(found)} {'letter' if len(found) == 1 else 'letters'}")


@letters.command("show")
@async_command
async def show_letter(
    letter_id: Annotated[str, typer.Argument(metavar="LETTER", help="Id of the letter: the order id.")],
    *,
    as_json: Json = False,
    address: InternalAddress = None,
) -> None:
    """Show a letter with its text, which is deleted when the letter was sent."""
    async with spool_client(address) as spool:
        found = await spool.GetLetter(letter_spool_pb2.GetLetterRequest(letter_id=letter_id))
    if as_json:
        print_json(found)
        return
    print_table(["Letter", "State", "Recipient", "Attempts ", "Reason", "Accepted", "Changed"], [_row(found.letter)])
    console.out(f"\n{found.message.replace(chr(13), '')}", highlight=False)


@letters.command("requeue")
@async_command
async def requeue_letters(
    letter_ids: Annotated[list[str], typer.Argument(metavar="LETTER...", help="Ids of the letters.")],
    *,
    address: InternalAddress = None,
) -> None:
    """Send letters again that were refused, or whose outcome is in doubt."""
    async with spool_client(address) as spool:
        request = letter_spool_pb2.RequeueLettersRequest(letter_ids=letter_ids)
        requeued = (await spool.RequeueLetters(request)).requeued
    for letter_id in letter_ids:
        console.print(f"{letter_id} {'requeued' if letter_id in requeued else 'left as it is'}", markup=False)


def _parse_state(name: str) -> letter_spool_pb2.LetterState.ValueType:
    states = letter_spool_pb2.LetterState.keys()
    if (full_name := _PREFIX + name.upper()) not in states:
        expected = ", ".join(each.removeprefix(_PREFIX) for each in states[1:])
        raise typer.BadParameter(f"unknown state {name}: expected one of {expected}", param_hint="--state")
    return letter_spool_pb2.LetterState.Value(full_name)


def _row(letter: letter_spool_pb2.Letter) -> list[str]:
    return [
        letter.letter_id,
        letter_spool_pb2.LetterState.Name(letter.state).removeprefix(_PREFIX),
        letter.recipient,
        str(letter.attempts),
        letter.reason,
        format_time(letter.accepted_at),
        format_time(letter.changed_at),
    ]
