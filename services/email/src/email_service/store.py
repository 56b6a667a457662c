"""The outbox: a folder of mails that nobody carries away."""

import contextlib
import os
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import structlog

from chassis.group_commit import GroupCommit
from email_service.domain import Letter, MailNotSent
from email_service.mime import Sender, to_mime

log = structlog.get_logger()


class Outbox:
    """A folder with one .eml file for each order; the same letter again replaces it. Raises OSError at the start."""

    def __init__(self, folder: Path, sender: Sender) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._sender = sender
        self._writes = GroupCommit[_Mail, None](self._write)

    async def send(self, letter: Letter) -> None:
        """Return once the file is on disk, whole. Raises MailNotSent."""
        mail = _Mail(letter.key, to_mime(letter, self._sender, datetime.now(UTC)))
        try:
            await self._writes.run(mail)
        except OSError as error:
            log.warning("mail not sent", error=type(error).__name__, errno=error.errno)
            raise MailNotSent("the outbox can't be written") from error

    async def close(self) -> None:
        """Finish what was begun."""
        await self._writes.close()

    def _write(self, mails: Sequence["_Mail"]) -> Sequence[None]:
        """Readers see no file or a whole one, and a crash after this returns loses nothing."""
        for mail in mails:
            self._write_one(mail)
        self._sync_folder()
        return [None] * len(mails)

    def _write_one(self, mail: "_Mail") -> None:
        temporary = self._folder / f".{mail.key}.{uuid.uuid4().hex}.tmp"
        try:
            with temporary.open("xb") as file:
                file.write(mail.content)
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(self._folder / f"{mail.key}.eml")
        except OSError:
            with contextlib.suppress(OSError):
                temporary.unlink()
            raise

    def _sync_folder(self) -> None:
        descriptor = os.open(self._folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


@dataclass(frozen=True, slots=True)
class _Mail:
    key: str
    content: bytes
