from types import SimpleNamespace
from typing import Any
from unittest.mock import AsyncMock

import pytest
from google.protobuf.timestamp_pb2 import Timestamp

from chassis.rpc.wire import parse_wire_time, time_to_wire
from chassis.values.paging import Position, read_page
from shop_kit.failing import rejecting


async def read(since: float, token: str, **found: Any) -> tuple[Position, str]:
    """Read a page of one entry or none. Return the position where it begins, and the next page's token."""
    scan = AsyncMock(return_value=[SimpleNamespace(**found)] if found else [])
    _, next_token = await read_page(SimpleNamespace(order_ids=(), page_token=token), since, scan, scan)
    return scan.call_args.args[0], next_token


async def test_pages_begin_at_the_given_time_then_where_the_one_before_ended_and_end_with_an_empty_one() -> None:
    end = Position(1_795_000_000.123457, "a key with spaces")
    begin, token = await read(12.5, "", position=end)
    assert (begin, await read(0.0, token)) == (Position(12.5), (end, ""))


@pytest.mark.parametrize("token", ["key", "nan key", "inf key", "-1.0 key", "1" * 513])
async def test_a_malformed_token_is_refused(token: str) -> None:
    with rejecting("page_token"):
        await read(0.0, token)


@pytest.mark.parametrize(
    ("since", "field"),
    [
        (Timestamp(seconds=-1), "since.seconds"),
        (Timestamp(seconds=1 << 40), "since.seconds"),
        (Timestamp(nanos=-1), "since.nanos"),
    ],
)
def test_an_impossible_time_is_refused(since: Timestamp, field: str) -> None:
    with rejecting(field):
        parse_wire_time(since, field="since")


def test_a_time_has_microseconds_on_the_wire() -> None:
    sent = time_to_wire(12.000_001_4)
    assert sent == Timestamp(seconds=12, nanos=1000)
    assert parse_wire_time(sent, field="since") == 12.000_001
