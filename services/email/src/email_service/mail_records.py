"""shop.internal.MailRecords: which confirmations were accepted, for reconciliation and for previews."""

from typing_extensions import override

from chassis.rpc.serving import ServicerContext
from chassis.rpc.wire import time_to_wire
from chassis.values.fields import limit_count, require_text
from email_service.domain import MAX_ID_LENGTH, MailIndex, MailNotFound, MailRecord
from shop_internal import mail_records_pb2, mail_records_pb2_grpc

_MAX_ORDERS = 1_000


class MailRecords(mail_records_pb2_grpc.MailRecordsServicer):
    """Looks up the confirmations of orders."""

    def __init__(self, index: MailIndex) -> None:
        self._index = index

    @override
    async def FindMails(
        self, request: mail_records_pb2.FindMailsRequest, _context: ServicerContext
    ) -> mail_records_pb2.FindMailsResponse:
        limit_count(request.order_ids, "order_ids", max_count=_MAX_ORDERS)
        found = [(order_id, await self._index.read(order_id)) for order_id in request.order_ids]
        mails = [_record_to_wire(order_id, mail.record) for order_id, mail in found if mail is not None]
        return mail_records_pb2.FindMailsResponse(mails=mails, complete_since=time_to_wire(self._index.complete_since))

    @override
    async def GetMail(
        self, request: mail_records_pb2.GetMailRequest, _context: ServicerContext
    ) -> mail_records_pb2.GetMailResponse:
        order_id = require_text(request.order_id, "order_id", max_length=MAX_ID_LENGTH)
        found = await self._index.read(order_id)
        if found is None:
            raise MailNotFound("there is no confirmation of this order")
        mail = _record_to_wire(order_id, found.record)
        return mail_records_pb2.GetMailResponse(mail=mail, message=found.message.decode("ascii"))


def _record_to_wire(order_id: str, record: MailRecord) -> mail_records_pb2.Mail:
    state = mail_records_pb2.MailState.Value(f"MAIL_STATE_{record.state.value}")
    return mail_records_pb2.Mail(order_id=order_id, state=state, reason=record.reason)
