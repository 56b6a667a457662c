from dataclasses import dataclass

import pytest
from google.protobuf.timestamp_pb2 import Timestamp

from chassis.rpc.wire import parse_wire_time, time_to_wire
from chassis.values.paging import Position, next_page_token, parse_position
from shop_kit.failing import rejecting


@dataclass(frozen=True)
class Entry:
    position: Position


def test_pages_begin_at_the_given_time_then_where_the_one_before_ended_and_end_with_an_empty_one() -> None:
    assert parse_position(12.5, "") == Position(12.5)
    end = Position(1_795_000_000.123457, "a key with spaces")
    assert parse_position(0.0, next_page_token([Entry(end)])) == end
    assert next_page_token([]) == ""


@pytest.mark.parametrize("token", ["key", "nan key", "inf key", "-1.0 key", "1" * 513])
def test_a_malformed_token_is_refused(token: str) -> None:
    with rejecting("page_token"):
        parse_position(0.0, token)


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
