"""A card's number and security code are nowhere but in memory and in the charge."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import grpc
import pytest

from chassis.errors import FailedPrecondition, Unavailable
from shop import checkout_pb2
from shop_testkit.fake_peers import FakePeers, Trouble
from shop_testkit.serving import Recorded

Request = Callable[..., checkout_pb2.PlaceOrderRequest]
Start = Callable[..., Any]

DIGITS = "4242424242424242"


async def test_no_digit_of_a_card_is_written_anywhere(  # noqa: PLR0917 - everything is looked at
    peers: FakePeers,
    start: Start,
    request_of: Request,
    recorded: Recorded,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    quoting = f"no charge for {DIGITS} 4242 4242 4242 4242"
    troubles = [None, Trouble(Unavailable(quoting), times=1), Trouble(FailedPrecondition(quoting, reason=f"R{DIGITS}"))]
    told = ""
    async with peers.serving() as address, start(address, recorded.telemetry) as checkout:
        for number, trouble in enumerate(troubles):
            peers.payment.trouble = {"Charge": trouble} if trouble else {}
            peers.cart.fill("ann", mug=1)
            try:
                told += str((await checkout.place(request_of(), f"key-{number}")).response)
            except grpc.aio.AioRpcError as error:
                told += str(error)
    written = everything_below(tmp_path)
    everything = told + written.decode("latin-1") + "".join(capsys.readouterr())
    everything += "".join(span.to_json() for span in recorded.spans())
    assert "4242" not in everything
    assert "ann@mail.example" in written.decode("latin-1")  # it looked at the right files


def everything_below(folder: Path) -> bytes:
    return b"".join(path.read_bytes() for path in folder.rglob("*") if path.is_file())
