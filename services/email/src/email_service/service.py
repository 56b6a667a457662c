"""shop.EmailService and shop.internal.LetterSpool: map messages to the domain and back."""

from collections.abc import Callable

import structlog
from google.protobuf.timestamp_pb2 import Timestamp
from typing_extensions import override

from chassis.rpc.serving import ServicerContext
from chassis.values.fields import limit_count, require_between
from email_service.acceptance import Acceptance
from email_service.letters import LetterNotFound, LetterRecord, LetterState, Spool
from shop import email_pb2, email_pb2_grpc, empty_pb2
from shop_internal import letter_spool_pb2 as spool_pb2
from shop_internal import letter_spool_pb2_grpc as spool_pb2_grpc

log = structlog.get_logger()

_UNSENT = (LetterState.REFUSED, LetterState.IN_DOUBT, LetterState.SENDING, LetterState.QUEUED)
_DEFAULT_LIMIT, _MAX_LIMIT = 50, 1_000


class EmailService(email_pb2_grpc.EmailServiceServicer):
    """The public service."""

    def __init__(self, acceptance: Acceptance) -> None:
        self._acceptance = acceptance

    @override
    async def SendOrderConfirmation(
        self, request: email_pb2.SendOrderConfirmationRequest, context: ServicerContext
    ) -> empty_pb2.Empty:
        """Return once the e-mail is on disk."""
        for error in (await self._acceptance.accept([request])).values():
            raise error
        return empty_pb2.Empty()


class LetterSpool(spool_pb2_grpc.LetterSpoolServicer):
    """The internal service, for operators. `notify` is called after a letter was requeued."""

    def __init__(self, spool: Spool, notify: Callable[[], None]) -> None:
        self._spool = spool
        self._notify = notify

    @override
    async def ListLetters(
        self, request: spool_pb2.ListLettersRequest, _context: ServicerContext
    ) -> spool_pb2.ListLettersResponse:
        limit = require_between(request.limit, "limit", 0, _MAX_LIMIT) or _DEFAULT_LIMIT
        states = {_state_from_wire(state) for state in request.states} or set(_UNSENT)
        found: list[LetterRecord] = []
        for state in filter(states.__contains__, _UNSENT):
            found += await self._spool.list_letters(state, limit)
        found.sort(key=lambda letter: letter.changed_at)
        return spool_pb2.ListLettersResponse(letters=map(_record_to_wire, found[:limit]))

    @override
    async def GetLetter(
        self, request: spool_pb2.GetLetterRequest, _context: ServicerContext
    ) -> spool_pb2.GetLetterResponse:
        found = await self._spool.read(request.letter_id)
        if found is None:
            raise LetterNotFound("the spool has no letter with this id")
        return spool_pb2.GetLetterResponse(letter=_record_to_wire(found), message=found.message.decode("ascii"))

    @override
    async def RequeueLetters(
        self, request: spool_pb2.RequeueLettersRequest, _context: ServicerContext
    ) -> spool_pb2.RequeueLettersResponse:
        limit_count(request.letter_ids, "letter_ids", max_count=_MAX_LIMIT)
        requeued = [letter_id for letter_id in request.letter_ids if await self._spool.requeue(letter_id)]
        log.info("letters requeued", letter_ids=requeued)
        self._notify()
        return spool_pb2.RequeueLettersResponse(requeued=requeued)


def _state_from_wire(state: spool_pb2.LetterState.ValueType) -> LetterState | None:
    name = spool_pb2.LetterState.Name(state) if state in spool_pb2.LetterState.values() else ""
    return LetterState.__members__.get(name.removeprefix("LETTER_STATE_"))


def _record_to_wire(record: LetterRecord) -> spool_pb2.Letter:
    return spool_pb2.Letter(
        letter_id=record.letter_id,
        state=spool_pb2.LetterState.Value(f"LETTER_STATE_{record.state}"),
        recipient=record.recipient,
        attempts=record.attempts,
        reason=record.reason,
        accepted_at=_timestamp(record.accepted_at),
        changed_at=_timestamp(record.changed_at),
    )


def _timestamp(seconds: float) -> Timestamp:
    timestamp = Timestamp()
    timestamp.FromMicroseconds(round(seconds * 1_000_000))
    return timestamp
