"""Tests that card numbers and security codes never appear in files, logs, spans or responses."""

import sqlite3
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path
from typing import Any

import grpc
import pytest

from chassis.telemetry import logging
from payment_service.__main__ import Settings, build
from shop import money_pb2, payment_pb2
from shop.payment_pb2_grpc import PaymentServiceStub
from shop_kit.card_leaks import leaked_cards
from shop_kit.serving import Recorded, program

VISA = "4929530463957262"
AMEX = "371449635398431"
MALFORMED = "4929530463957263"
CODE = 9137
IMPOSSIBLE_CODE = 1_918_273_645
SECRETS = (VISA, AMEX, MALFORMED, str(IMPOSSIBLE_CODE))
KEY = "k" * 32


def request(
    number: str, *, currency_code: str = "EUR", units: int = 5, cvv: int = CODE, month: int = 11
) -> payment_pb2.ChargeRequest:
    return payment_pb2.ChargeRequest(
        amount=money_pb2.Money(currency_code=currency_code, units=units),
        credit_card=payment_pb2.CreditCardInfo(
            credit_card_number=number,
            credit_card_cvv=cvv,
            credit_card_expiration_year=2030,
            credit_card_expiration_month=month,
        ),
    )


def requests() -> Iterable[tuple[payment_pb2.ChargeRequest, str | None]]:
    """Return requests that are charged, declined, malformed or repeated, some with card numbers in wrong fields."""
    separated = f"{VISA[:4]} {VISA[4:8]}-{VISA[8:]}"
    for number in (VISA, separated, AMEX, MALFORMED, VISA + VISA, f"{VISA}\n"):
        yield request(number), "key"
        yield request(number), None
    yield request("4242", currency_code=VISA), "other"
    yield request(VISA, units=-1), "other"
    yield request(VISA, month=13), None
    yield request(VISA, cvv=IMPOSSIBLE_CODE), None


async def send_all(stub: PaymentServiceStub) -> list[str]:
    """Send every request. Return everything that the caller receives."""
    received: list[str] = []
    for sent, key in requests():
        try:
            received.append(str(await stub.Charge(sent, metadata=[("idempotency-key", key)] if key else [])))
        except grpc.aio.AioRpcError as refused:
            received.append(f"{refused.details()} {refused.trailing_metadata()} {refused.debug_error_string()}")
    return received


@pytest.mark.parametrize("failpoints", ["", "payment.charge.after=error"])
async def test_no_card_is_in_a_file_log_span_or_response(
    sqlite_url: str, tmp_path: Path, failpoints: str, recorded: Recorded, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    logging.configure("payment", level="debug")
    settings: dict[str, Any] = {"database_url": sqlite_url, "failpoints": failpoints, "hmac_key": KEY}
    async with program(Settings, build, recorded.telemetry, **settings) as channel:
        received = await send_all(PaymentServiceStub(channel))
        files = {path.name: path.read_bytes() for path in tmp_path.iterdir()}  # noqa: ASYNC240 - local files
        with closing(sqlite3.connect(tmp_path / "test.db")) as connection:
            rows = {value for row in connection.execute("SELECT * FROM charges") for value in row}
    assert "test.db-wal" in files
    assert "visa" in rows
    assert {CODE, str(CODE), VISA[:6], VISA[-4:]}.isdisjoint(rows)
    assert [name for name, written in files.items() if KEY.encode() in written] == []
    written = [*files.values(), *capsysbinary.readouterr(), *(span.to_json().encode() for span in recorded.spans())]
    assert leaked_cards(b"\n".join((*written, *map(str.encode, received))), SECRETS) == set()
