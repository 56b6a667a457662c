"""Card numbers and security codes appear in no file, log, span or response."""

import asyncio
import json
import os
import sqlite3
import sys
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path

import grpc
import pytest

from shop import money_pb2, payment_pb2
from shop.payment_pb2_grpc import PaymentServiceStub
from shop_kit.card_leaks import leaked_cards

VISA = "4929530463957262"
AMEX = "371449635398431"
MALFORMED = "4929530463957263"
CODE = 9137
IMPOSSIBLE_CODE = 1_918_273_645
SECRETS = (VISA, AMEX, MALFORMED, str(IMPOSSIBLE_CODE))
KEY = "k" * 32
ENVIRONMENT = {
    "HOST": "127.0.0.1",
    "PORT": "0",
    "INTERNAL_PORT": "0",
    "DRAIN_SECONDS": "0",
    "LOG_LEVEL": "debug",
    "HMAC_KEY": KEY,
}


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
    """Charged, declined, malformed and repeated requests, with card numbers in the right and in wrong fields."""
    separated = f"{VISA[:4]} {VISA[4:8]}-{VISA[8:]}"
    for number in (VISA, separated, AMEX, MALFORMED, VISA + VISA, f"{VISA}\n"):
        yield request(number), "key"
        yield request(number), None
    yield request("4242", currency_code=VISA), "other"
    yield request(VISA, units=-1), "other"
    yield request(VISA, month=13), None
    yield request(VISA, cvv=IMPOSSIBLE_CODE), None


async def send_all(port: int) -> list[str]:
    """Send every request; return all that the caller receives."""
    received: list[str] = []
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        stub = PaymentServiceStub(channel)
        for sent, key in requests():
            try:
                received.append(str(await stub.Charge(sent, metadata=[("idempotency-key", key)] if key else [])))
            except grpc.aio.AioRpcError as refused:
                received.append(f"{refused.details()} {refused.trailing_metadata()} {refused.debug_error_string()}")
    return received


@pytest.mark.parametrize("failpoints", ["", "payment.charge.after=error"])
async def test_no_card_is_in_a_file_log_or_response(tmp_path: Path, failpoints: str) -> None:
    running = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "payment_service",
        cwd=tmp_path,
        env={**os.environ, **ENVIRONMENT, "FAILPOINTS": failpoints},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    assert running.stdout is not None
    received = await send_all(json.loads(await running.stdout.readline())["port"])
    files = {path.name: path.read_bytes() for path in (tmp_path / ".shop").iterdir()}
    rows = stored_values(tmp_path / ".shop" / "payment.db")
    running.terminate()
    logs = await running.communicate()
    assert {"payment.db", "payment.db-wal"} <= files.keys()
    assert "visa" in rows
    assert {CODE, str(CODE), VISA[:6], VISA[-4:]}.isdisjoint(rows)
    assert [name for name, written in files.items() if KEY.encode() in written] == []
    assert leaked_cards(b"\n".join((*files.values(), *logs, *map(str.encode, received))), SECRETS) == set()


def stored_values(path: Path) -> set[object]:
    with closing(sqlite3.connect(path)) as connection:
        return {value for row in connection.execute("SELECT * FROM charges") for value in row}
