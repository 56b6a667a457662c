"""A card's number and security code exist only in memory and in the call to payment."""

import re
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import grpc
import pytest

from chassis.errors import FailedPrecondition, Unavailable
from shop import payment_pb2
from shop_kit.card_leaks import leaked_cards
from shop_kit.fake_peers import FakePeers, Fault
from shop_kit.serving import Recorded

Start = Callable[..., Any]

NUMBER, LAST_FOUR, CODE = "4929530463957262", "7262", 9137
CARD = payment_pb2.CreditCardInfo(
    credit_card_number="4929 5304 6395 7262",
    credit_card_cvv=CODE,
    credit_card_expiration_year=2035,
    credit_card_expiration_month=11,
)
# Random ids and times contain any four digits now and then, but not on their own.
ON_THEIR_OWN = re.compile(rf"(?<![0-9A-Za-z.-])(?:{LAST_FOUR}|{CODE})(?![0-9A-Za-z-])")


def leaks(text: str) -> list[str]:
    """Return the card, its last four digits and its code, as far as they are in a text."""
    return [*leaked_cards(text.encode(), [NUMBER]), *ON_THEIR_OWN.findall(text)]


@pytest.mark.parametrize("text", [NUMBER, "4929-5304-6395-7262", "x953046395x", f"ends in {LAST_FOUR}", f"cvv={CODE}"])
def test_a_leak_is_detected(text: str) -> None:
    assert leaks(text)


@pytest.mark.parametrize(
    "text", ["0a7262ff", "01998d2c-7262-7000-8000-91370a91370a", "17:02:03.172620Z", "1795333843.7262"]
)
def test_an_id_or_time_is_not_taken_for_a_leak(text: str) -> None:
    assert not leaks(text)


async def test_no_part_of_a_card_is_in_a_file_log_span_or_response(
    peers: FakePeers,
    start: Start,
    recorded: Recorded,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    quoting = f"no charge for {NUMBER} 4929 5304 6395 7262"
    faults = [None, Fault(Unavailable(quoting), times=1), Fault(FailedPrecondition(quoting, reason=f"R{NUMBER}"))]
    received = ""
    async with start(recorded.telemetry) as checkout:
        for number, fault in enumerate(faults):
            peers.payment.faults = {"Charge": fault} if fault else {}
            peers.cart.fill("ann", mug=1)
            try:
                received += str((await checkout.place(f"key-{number}", credit_card=CARD)).response)
            except grpc.aio.AioRpcError as error:
                received += str(error)
    files = everything_below(tmp_path).decode("latin-1")
    spans = "".join(span.to_json() for span in recorded.spans())
    values = [str(value) for value in stored_values(tmp_path / "test.db")]
    searched = [received, files, *capsys.readouterr(), spans, *values]
    assert [found for text in searched for found in leaks(text)] == []
    assert "ann@mail.example" in files
    assert "ann@mail.example" in values


def everything_below(folder: Path) -> bytes:
    return b"".join(path.read_bytes() for path in folder.rglob("*") if path.is_file())


def stored_values(path: Path) -> list[object]:
    """Return every value in the database, which a file holds without separators."""
    with closing(sqlite3.connect(path)) as connection:
        tables = [row[0] for row in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        return [value for table in tables for row in connection.execute(f"SELECT * FROM {table}") for value in row]  # noqa: S608
