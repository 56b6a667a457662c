"""The outbox folder."""

import asyncio
import errno
import os
from collections.abc import Sequence
from email import message_from_bytes, policy
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from email_service import store
from email_service.domain import ConfirmationEmail, MailNotSent
from email_service.mime import Sender
from email_service.store import Outbox

SENDER = Sender("Shop", "orders@shop.example")
EMAIL = ConfirmationEmail("o-1", "jane@example.com", "Your order o-1", "Hello €1\n.\n", "<p>Hello €1</p>\n")


async def test_a_file_has_the_headers_and_both_bodies(tmp_path: Path) -> None:
    await Outbox(tmp_path, SENDER).accept([EMAIL])
    mail = message_from_bytes((tmp_path / "o-1.eml").read_bytes(), policy=policy.default)
    bodies = [part.get_content().replace("\r\n", "\n") for part in mail.iter_parts()]
    assert bodies == [EMAIL.text, EMAIL.html]
    assert (mail["From"], mail["To"]) == ("Shop <orders@shop.example>", "jane@example.com")
    assert (mail["Subject"], mail["Message-ID"]) == ("Your order o-1", "<o-1@shop>")
    assert mail["Date"].datetime


async def test_emails_accepted_concurrently_are_all_written(tmp_path: Path) -> None:
    emails = [ConfirmationEmail(f"o-{number}", "jane@example.com", "Hi", "text", "html") for number in range(50)]
    outbox = Outbox(tmp_path, SENDER)
    await asyncio.gather(*(outbox.accept([email]) for email in emails))
    assert set(files(tmp_path)) == {f"{email.order_id}.eml" for email in emails}


async def test_an_order_id_can_neither_escape_the_outbox_nor_add_a_header(tmp_path: Path) -> None:
    hostile = "../escaped\r\nBcc: all@example.com"
    await Outbox(tmp_path, SENDER).accept([ConfirmationEmail(hostile, "jane@example.com", "Hi", "text", "html")])
    (name,) = files(tmp_path)
    assert message_from_bytes((tmp_path / name).read_bytes(), policy=policy.default)["Bcc"] is None
    assert not any("escaped" in name for name in files(tmp_path.parent))


def files(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir()]


async def test_the_outbox_has_one_file_per_order(tmp_path: Path) -> None:
    outbox = Outbox(tmp_path / "new" / "folder", SENDER)
    await outbox.accept([EMAIL])
    await outbox.accept([EMAIL])
    assert files(tmp_path / "new" / "folder") == ["o-1.eml"]


async def test_a_repeated_email_does_not_change_the_first(tmp_path: Path) -> None:
    outbox = Outbox(tmp_path, SENDER)
    await outbox.accept([EMAIL])
    first = (tmp_path / "o-1.eml").read_bytes()
    await outbox.accept([ConfirmationEmail("o-1", "jane@example.com", "Other", "other", "<p>other</p>")])
    assert (tmp_path / "o-1.eml").read_bytes() == first


async def test_concurrent_emails_share_a_flush_of_the_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    flushed: list[int] = []
    flush = os.fsync

    def record_flush(descriptor: int) -> None:
        flushed.append(descriptor)
        flush(descriptor)

    monkeypatch.setattr(os, "fsync", record_flush)
    outbox = Outbox(tmp_path, SENDER)
    emails = [ConfirmationEmail(f"o-{number}", "jane@example.com", "Hi", "text", "html") for number in range(50)]
    await asyncio.gather(*(outbox.accept([email]) for email in emails))
    await outbox.close()
    assert len(files(tmp_path)) == 50
    assert len(flushed) < 60


async def test_a_full_disk_is_unavailable_and_leaves_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(MailNotSent):
        await Outbox(tmp_path, SENDER).accept([EMAIL])
    assert not files(tmp_path)


async def test_a_disk_that_fills_up_during_a_batch_leaves_no_file_and_the_batch_can_be_repeated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flushes, flush = count(), os.fsync

    def fill_up(descriptor: int) -> None:
        if next(flushes) == 2:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        flush(descriptor)

    monkeypatch.setattr(os, "fsync", fill_up)
    outbox = Outbox(tmp_path, SENDER)
    emails = [ConfirmationEmail(f"o-{number}", "jane@example.com", "Hi", "text", "html") for number in range(5)]
    with pytest.raises(MailNotSent):
        await outbox.accept(emails)
    assert not files(tmp_path)
    await outbox.accept(emails)
    assert set(files(tmp_path)) == {f"{email.order_id}.eml" for email in emails}


async def test_no_more_files_than_the_limit_are_open_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[int] = []
    write = store._write_durably

    def record_write(paths: Sequence[Path], new: Sequence[Any]) -> None:
        written.append(len(paths))
        write(paths, new)

    monkeypatch.setattr(store, "_write_durably", record_write)
    emails = [ConfirmationEmail(f"o-{number}", "jane@example.com", "Hi", "text", "html") for number in range(250)]
    await Outbox(tmp_path, SENDER).accept(emails)
    assert written == [100, 100, 50]
    assert len(files(tmp_path)) == 250


async def test_a_deleted_outbox_is_unavailable(tmp_path: Path) -> None:
    outbox = Outbox(tmp_path / "outbox", SENDER)
    (tmp_path / "outbox").rmdir()
    with pytest.raises(MailNotSent):
        await outbox.accept([EMAIL])
