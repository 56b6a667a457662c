"""The job reads again while a peer fails; tests/system has peers that start late or never."""

from typing import cast

import pytest

from chassis.errors import Unavailable
from checkout_service.reconciliation.__main__ import ReconciliationSettings, _read_in_time
from checkout_service.reconciliation.reader import Reader, Records
from checkout_service.reconciliation.rules import CompleteSince

RECORDS = Records([], charges=0, shipments=0, complete_since=CompleteSince())


class RestartedPeer:
    """Reads that fail so many times before one succeeds."""

    def __init__(self, failures: int) -> None:
        self.failures = failures

    async def read(self, since: float) -> Records:
        assert since > 0
        self.failures -= 1
        if self.failures >= 0:
            raise Unavailable("going away")
        return RECORDS


def settings(wait_seconds: float) -> ReconciliationSettings:
    return ReconciliationSettings(
        checkout_internal_addr="peer:1",
        payment_internal_addr="peer:1",
        shipping_internal_addr="peer:1",
        wait_seconds=wait_seconds,
    )


async def test_records_are_read_again_when_a_peer_is_replaced_meanwhile() -> None:
    reader = cast("Reader", RestartedPeer(failures=2))
    assert await _read_in_time(reader, {}, settings(wait_seconds=60)) is RECORDS


async def test_the_job_ends_with_the_last_error_when_its_time_is_over() -> None:
    reader = cast("Reader", RestartedPeer(failures=1))
    with pytest.raises(Unavailable, match="^going away$"):
        await _read_in_time(reader, {}, settings(wait_seconds=0))
