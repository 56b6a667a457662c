from dataclasses import dataclass

import pytest
from google.protobuf.timestamp_pb2 import Timestamp

from chassis.errors import InvalidArgument
from chassis.rpc.wire import parse_wire_time, time_to_wire
from chassis.values.paging import Position, next_page_token, parse_position


@dataclass(frozen=True)
class Entry:
    position: Position


def test_the_first_page_begins_at_the_given_time() -> None:
    assert parse_position(12.5, "") == Position(12.5)


def test_a_page_begins_where_the_one_before_ended() -> None:
    end = Position(1_795_000_000.123457, "a key with spaces")
    assert parse_position(0.0, next_page_token([Entry(end)])) == end


def test_an_empty_page_is_the_last() -> None:
    assert next_page_token([]) == ""


@pytest.mark.parametrize("token", ["key", "nan key", "inf key", "-1.0 key", "1" * 513])
def test_a_malformed_token_is_refused(token: str) -> None:
    with pytest.raises(InvalidArgument) as refused:
        parse_position(0.0, token)
    assert refused.value.violations[0].field == "page_token"


@pytest.mark.parametrize(
    ("since", "field"),
    [
        (Timestamp(seconds=-1), "since.seconds"),
        (Timestamp(seconds=1 << 40), "since.seconds"),
        (Timestamp(nanos=-1), "since.nanos"),
    ],
)
def test_an_impossible_time_is_refused(since: Timestamp, field: str) -> None:
    with pytest.raises(InvalidArgument) as refused:
        parse_wire_time(since, field="since")
    assert refused.value.violations[0].field == field


def test_a_time_has_microseconds_on_the_wire() -> None:
    sent = time_to_wire(12.000_001_4)
    assert sent == Timestamp(seconds=12, nanos=1000)
    assert parse_wire_time(sent, field="since") == 12.000_001
