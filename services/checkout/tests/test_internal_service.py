"""UNIMPLEMENTED from an internal service is a passing condition until it has lasted."""

from contextlib import suppress

import pytest

from chassis.errors import NotFound, Unavailable, Unimplemented
from checkout_service.peers import internal_service
from checkout_service.peers.internal_service import InternalService


class Peer:
    """A method that fails with the given errors, one per call, and then succeeds."""

    def __init__(self, *errors: Exception) -> None:
        self.errors = list(errors)

    async def method(self, request: str) -> str:
        if self.errors:
            raise self.errors.pop(0)
        return f"reply to {request}"


@pytest.fixture
def service() -> InternalService:
    return InternalService("shop.internal.Test")


@pytest.mark.parametrize(("absent_after", "reason"), [(0.0, None), (60.0, internal_service.NO_ADDRESS)])
async def test_a_service_that_is_missing_for_long_or_has_no_address_is_not_implemented(
    service: InternalService, monkeypatch: pytest.MonkeyPatch, absent_after: float, reason: str | None
) -> None:
    monkeypatch.setattr(internal_service, "ABSENT_AFTER_SECONDS", absent_after)
    with pytest.raises(Unimplemented):
        await service.call(Peer(Unimplemented("missing", reason=reason)).method, "request")


@pytest.mark.parametrize("first", [[], [NotFound("no such charge")]])
async def test_a_service_that_has_responded_once_is_never_absent(
    service: InternalService, monkeypatch: pytest.MonkeyPatch, first: list[Exception]
) -> None:
    monkeypatch.setattr(internal_service, "ABSENT_AFTER_SECONDS", 0.0)
    responded = Peer(*first)
    with suppress(NotFound):
        await service.call(responded.method, "request")
    with pytest.raises(Unavailable):
        await service.call(Peer(Unimplemented("no route")).method, "request")
