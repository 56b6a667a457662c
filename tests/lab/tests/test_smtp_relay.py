"""The relay treats mails as its mode says."""

import asyncio
import smtplib
from pathlib import Path

import pytest

from shop_kit.smtp_relay import Inbox, RelayMode, relay

MAIL = "Subject: order\r\n\r\n..two dots\r\n"


async def send(inbox: Inbox) -> None:
    async with relay(inbox) as port:
        await asyncio.to_thread(_send, port)


def _send(port: int) -> None:
    with smtplib.SMTP("127.0.0.1", port, timeout=30) as client:
        client.sendmail("shop@example.com", ["ada@example.com"], MAIL)


@pytest.mark.parametrize("mode", ["accept", "slow"])
async def test_a_mail_is_accepted_unchanged(tmp_path: Path, mode: RelayMode) -> None:
    inbox = Inbox(mode=mode, folder=tmp_path / "mails")
    await send(inbox)
    assert inbox.mails == [MAIL.encode()]
    assert [path.read_bytes() for path in (tmp_path / "mails").iterdir()] == inbox.mails


@pytest.mark.parametrize(
    ("mode", "error", "accepted"),
    [("defer", smtplib.SMTPDataError, 0), ("hang up", smtplib.SMTPServerDisconnected, 1)],
)
async def test_a_relay_that_defers_accepts_nothing_and_one_that_hangs_up_has_accepted_the_mail(
    mode: RelayMode, error: type[Exception], accepted: int
) -> None:
    inbox = Inbox(mode=mode)
    with pytest.raises(error):
        await send(inbox)
    assert len(inbox.mails) == accepted
