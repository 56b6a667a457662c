"""Implements shop.internal.LetterSpool, for operators, and MailRecords, for reconciliation and the storefront."""

from dataclasses import dataclass

import structlog

from chassis.rpc.calls import ServicerContext
from chassis.rpc.wire import time_to_wire
from chassis.values.fields import limit_count, require_between, require_text, signed_reason
from email_service.domain import MAX_ID_LENGTH, MailNotFound, message_id_of
from email_service.messages import LetterNotFound, MessageRecord, MessageState
from email_service.spool.sql import Spool
from shop_internal import letter_spool_pb2 as pb2
from shop_internal import letter_spool_pb2_grpc, mail_records_pb2_grpc, record_digests_pb2
from shop_internal import mail_records_pb2 as records_pb2

log = structlog.get_logger()

_UNSENT = (MessageState.REFUSED, MessageState.IN_DOUBT, MessageState.SENDING, MessageState.QUEUED)
_MAIL_STATES = {
    MessageState.QUEUED: records_pb2.MAIL_STATE_QUEUED,
    MessageState.SENDING: records_pb2.MAIL_STATE_QUEUED,
    MessageState.SENT: records_pb2.MAIL_STATE_SENT,
    MessageState.IN_DOUBT: records_pb2.MAIL_STATE_FAILED,
    MessageState.REFUSED: records_pb2.MAIL_STATE_FAILED,
}
_DEFAULT_LIMIT, _MAX_LIMIT = 50, 1_000


@dataclass(frozen=True)
class Messages(letter_spool_pb2_grpc.LetterSpoolServicer, mail_records_pb2_grpc.MailRecordsServicer):
    """Lists, shows, requeues and closes messages, and reports the state of orders' confirmations."""

    _spool: Spool

    async def ListLetters(self, request: pb2.ListLettersRequest, _context: ServicerContext) -> pb2.ListLettersResponse:
        limit = require_between(request.limit, "limit", 0, _MAX_LIMIT) or _DEFAULT_LIMIT
        states = {_state_from_wire(state) for state in request.states} or set(_UNSENT)
        found: list[MessageRecord] = []
        for state in filter(states.__contains__, _UNSENT):
            found += await self._spool.list_unsent(state, limit)
        found.sort(key=lambda record: record.changed_at)
        return pb2.ListLettersResponse(letters=map(_letter_to_wire, found[:limit]))

    async def GetLetter(self, request: pb2.GetLetterRequest, _context: ServicerContext) -> pb2.GetLetterResponse:
        found = await self._spool.read(request.letter_id)
        if found is None:
            raise LetterNotFound("the spool has no message with this id")
        return pb2.GetLetterResponse(letter=_letter_to_wire(found), message=found.content.decode("ascii"))

    async def RequeueLetters(
        self, request: pb2.RequeueLettersRequest, _context: ServicerContext
    ) -> pb2.RequeueLettersResponse:
        limit_count(request.letter_ids, "letter_ids", max_count=_MAX_LIMIT)
        requeued = [
            message_id
            for message_id in request.letter_ids
            if await self._spool.requeue(message_id, forget_sent=request.forget_sent)
        ]
        log.info("messages requeued", message_ids=requeued)
        return pb2.RequeueLettersResponse(requeued=requeued)

    async def CloseLetters(
        self, request: pb2.CloseLettersRequest, _context: ServicerContext
    ) -> pb2.CloseLettersResponse:
        limit_count(request.letter_ids, "letter_ids", max_count=_MAX_LIMIT)
        text = signed_reason(request.by, request.reason)
        closed = [message_id for message_id in request.letter_ids if await self._spool.close(message_id, text)]
        log.info("messages closed", message_ids=closed)
        return pb2.CloseLettersResponse(closed=closed)

    async def FindMails(
        self, request: records_pb2.FindMailsRequest, _context: ServicerContext
    ) -> records_pb2.FindMailsResponse:
        limit_count(request.order_ids, "order_ids", max_count=_MAX_LIMIT)
        ids = {message_id_of(order_id): order_id for order_id in request.order_ids}
        mails = [_mail_to_wire(ids[id_], record) for id_, record in (await self._spool.find(ids)).items()]
        complete_since = time_to_wire(await self._spool.deletions.complete_since())
        return records_pb2.FindMailsResponse(mails=mails, complete_since=complete_since)

    async def GetMail(
        self, request: records_pb2.GetMailRequest, _context: ServicerContext
    ) -> records_pb2.GetMailResponse:
        order_id = require_text(request.order_id, "order_id", max_length=MAX_ID_LENGTH)
        found = await self._spool.read(message_id_of(order_id))
        if found is None:
            raise MailNotFound("there is no confirmation of this order")
        mail = _mail_to_wire(order_id, found)
        return records_pb2.GetMailResponse(mail=mail, message=found.content.decode("ascii"))


def _state_from_wire(state: pb2.LetterState.ValueType) -> MessageState | None:
    name = pb2.LetterState.Name(state) if state in pb2.LetterState.values() else ""
    return MessageState.__members__.get(name.removeprefix("LETTER_STATE_"))


def _letter_to_wire(record: MessageRecord) -> pb2.Letter:
    return pb2.Letter(
        letter_id=record.message_id,
        state=pb2.LetterState.Value(f"LETTER_STATE_{record.state}"),
        recipient=record.recipient,
        attempts=record.attempts,
        reason=record.reason,
        accepted_at=time_to_wire(record.accepted_at),
        changed_at=time_to_wire(record.changed_at),
        closed=record.closed,
    )


def _mail_to_wire(order_id: str, record: MessageRecord | None) -> records_pb2.Mail:
    if record is None:
        return records_pb2.Mail(order_id=order_id)
    recipient, confirmation, prices = (record.digests[start : start + 4] for start in (0, 4, 8))
    digests = record_digests_pb2.RecordDigests(recipient=recipient, confirmation=confirmation, prices=prices)
    state = records_pb2.MAIL_STATE_CLOSED if record.closed else _MAIL_STATES[record.state]
    return records_pb2.Mail(order_id=order_id, state=state, reason=record.reason, digests=digests)
