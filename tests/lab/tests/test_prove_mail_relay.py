"""The relay treats mails as its mode says."""

import asyncio
import smtplib
from pathlib import Path

import pytest

from shop_lab.world.mail_relay import RelayMode, mail_relay

MAIL = "Subject: order\r\n\r\n..two dots\r\n"


def send(url: str) -> None:
    host, _, port = url.removeprefix("smtp://").partition(":")
    with smtplib.SMTP(host, int(port), timeout=30) as client:
        client.sendmail("shop@example.com", ["ada@example.com"], MAIL)


async def sent_through(folder: Path, mode: RelayMode) -> list[bytes]:
    """Send a mail and return those that the relay accepted."""
    try:
        async with mail_relay(folder / "mails") as relay:
            relay.mode = mode
            await asyncio.to_thread(send, relay.url)
    finally:
        accepted = [path.read_bytes() for path in (folder / "mails").glob("*.eml")]
    return accepted


async def test_a_mail_is_accepted_unchanged(tmp_path: Path) -> None:
    assert await sent_through(tmp_path, "accept") == [MAIL.encode()]


async def test_a_slow_relay_accepts_the_mail(tmp_path: Path) -> None:
    assert await sent_through(tmp_path, "slow") == [MAIL.encode()]


async def test_a_relay_that_defers_does_not_accept_the_mail(tmp_path: Path) -> None:
    with pytest.raises(smtplib.SMTPDataError, match="451"):
        await sent_through(tmp_path, "defer")
    assert not list((tmp_path / "mails").iterdir())


async def test_a_relay_that_hangs_up_has_accepted_the_mail(tmp_path: Path) -> None:
    with pytest.raises(smtplib.SMTPServerDisconnected):
        await sent_through(tmp_path, "hang up")
    assert len(list((tmp_path / "mails").iterdir())) == 1
