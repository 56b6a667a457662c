"""Neither card numbers nor the key of their HMACs are in files; tests/system/test_canary.py covers all else."""

import sqlite3
from contextlib import closing
from pathlib import Path

import grpc

from chassis.telemetry.instruments import Telemetry
from payment_service.__main__ import Settings, build
from shop.money_pb2 import Money
from shop.payment_pb2 import ChargeRequest, CreditCardInfo
from shop.payment_pb2_grpc import PaymentServiceStub
from shop_kit.card_leaks import leaked_cards
from shop_kit.serving import program

VISA, AMEX, MALFORMED = "4929530463957262", "371449635398431", "4929530463957263"
CODE = 9137
KEY = "k" * 32


async def test_neither_card_nor_key_is_in_a_file(sqlite_url: str, tmp_path: Path) -> None:
    async with program(Settings, build, Telemetry(), database_url=sqlite_url, hmac_key=KEY) as channel:
        for number in (VISA, f"{VISA[:4]} {VISA[4:8]}-{VISA[8:]}", AMEX, MALFORMED):
            card = CreditCardInfo(credit_card_number=number, credit_card_cvv=CODE)
            card.credit_card_expiration_year, card.credit_card_expiration_month = 2030, 11
            request = ChargeRequest(amount=Money(currency_code="EUR", units=5), credit_card=card)
            call = PaymentServiceStub(channel).Charge(request, metadata=[("idempotency-key", number[:3])])
            assert await call.code() is not grpc.StatusCode.UNAVAILABLE
        files = {path.name: path.read_bytes() for path in tmp_path.iterdir()}  # noqa: ASYNC240 - local files
        with closing(sqlite3.connect(tmp_path / "test.db")) as connection:
            rows = {value for row in connection.execute("SELECT * FROM charges") for value in row}
    assert "test.db-wal" in files
    assert "visa" in rows
    assert {CODE, str(CODE), VISA[:6], VISA[-4:]}.isdisjoint(rows)
    assert [name for name, written in files.items() if KEY.encode() in written] == []
    assert leaked_cards(b"\n".join(files.values()), (VISA, AMEX, MALFORMED)) == set()
