"""Accepted confirmations are found by order."""

import time
from dataclasses import replace

import grpc
import pytest

from email_service.domain import ConfirmationEmail, MailIndex, MailRecord, MailState
from email_service.letters import LetterState, Spool
from email_service.mail_records import MailRecords
from email_service.mime import parse_sender
from email_service.spooling import SpooledMailer
from shop_internal import mail_records_pb2
from shop_internal.mail_records_pb2_grpc import MailRecordsStub, add_MailRecordsServicer_to_server
from shop_kit.serving import connect

SENDER = parse_sender("Shop <orders@shop.example>")
EMAIL = ConfirmationEmail("order/1", "ann@mail.example", "Your order", "text", "<p>text</p>")


async def found(index: MailIndex, *order_ids: str) -> list[mail_records_pb2.Mail]:
    async with connect((add_MailRecordsServicer_to_server, MailRecords(index))) as channel:
        request = mail_records_pb2.FindMailsRequest(order_ids=order_ids)
        return list((await MailRecordsStub(channel).FindMails(request)).mails)


async def mail_of(index: MailIndex, order_id: str) -> mail_records_pb2.GetMailResponse:
    async with connect((add_MailRecordsServicer_to_server, MailRecords(index))) as channel:
        return await MailRecordsStub(channel).GetMail(mail_records_pb2.GetMailRequest(order_id=order_id))


async def record_of(index: MailIndex, order_id: str) -> MailRecord | None:
    found = await index.read(order_id)
    return None if found is None else found.record


async def test_mails_are_found_by_order_and_unknown_orders_are_left_out(spool: Spool) -> None:
    mailer = SpooledMailer(spool, SENDER, lambda: None)
    await mailer.accept([EMAIL])
    (mail,) = await found(mailer, "order/1", "unknown")
    assert mail == mail_records_pb2.Mail(order_id="order/1", state=mail_records_pb2.MAIL_STATE_QUEUED)


async def test_a_letter_is_returned_with_its_text_until_it_is_sent(spool: Spool) -> None:
    mailer = SpooledMailer(spool, SENDER, lambda: None)
    await mailer.accept([EMAIL])
    before = await mail_of(mailer, "order/1")
    (letter,) = await spool.claim(1)
    assert await spool.begin_sending(letter)
    await spool.finish(letter, LetterState.SENT)
    after = await mail_of(mailer, "order/1")
    assert (before.mail.state, before.message.encode()) == (mail_records_pb2.MAIL_STATE_QUEUED, letter.message)
    assert (after.mail.state, after.message) == (mail_records_pb2.MAIL_STATE_SENT, "")


async def test_a_repeated_letter_does_not_change_the_first(spool: Spool) -> None:
    mailer = SpooledMailer(spool, SENDER, lambda: None)
    await mailer.accept([EMAIL])
    first = await mailer.read("order/1")
    await mailer.accept([replace(EMAIL, text="other")])
    assert await mailer.read("order/1") == first


@pytest.mark.parametrize(
    ("order_id", "code"),
    [("unknown", grpc.StatusCode.NOT_FOUND), ("", grpc.StatusCode.INVALID_ARGUMENT)],
)
async def test_an_order_without_a_mail_is_not_found(spool: Spool, order_id: str, code: grpc.StatusCode) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await mail_of(SpooledMailer(spool, SENDER, lambda: None), order_id)
    assert caught.value.code() is code


async def test_letters_are_complete_since_their_retention(spool: Spool) -> None:
    assert SpooledMailer(spool, SENDER, lambda: None).complete_since == pytest.approx(time.time() - 90 * 86_400, abs=60)


async def test_an_accepted_letter_is_queued_until_it_is_sent(spool: Spool) -> None:
    mailer = SpooledMailer(spool, SENDER, lambda: None)
    await mailer.accept([EMAIL])
    before = await record_of(mailer, "order/1")
    (letter,) = await spool.claim(1)
    assert await spool.begin_sending(letter)
    sending = await record_of(mailer, "order/1")
    await spool.finish(letter, LetterState.SENT)
    assert [before, sending] == [MailRecord(MailState.QUEUED)] * 2
    assert await record_of(mailer, "order/1") == MailRecord(MailState.SENT)
    assert await record_of(mailer, "unknown") is None


@pytest.mark.parametrize("state", [LetterState.REFUSED, LetterState.IN_DOUBT])
async def test_a_letter_that_is_not_sent_again_has_failed(spool: Spool, state: LetterState) -> None:
    mailer = SpooledMailer(spool, SENDER, lambda: None)
    await mailer.accept([EMAIL])
    (letter,) = await spool.claim(1)
    assert await spool.begin_sending(letter)
    await spool.finish(letter, state, "RELAY_550")
    assert await record_of(mailer, "order/1") == MailRecord(MailState.FAILED, "RELAY_550")
