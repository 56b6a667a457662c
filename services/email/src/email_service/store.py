"""The outbox: a folder of mails that nobody carries away."""

import asyncio
import contextlib
import os
import uuid
from datetime import UTC, datetime
from pathlib import Path

import structlog

from email_service.domain import Letter, MailNotSent
from email_service.mime import Sender, to_mime

log = structlog.get_logger()


class Outbox:
    """A folder with one .eml file for each order; the same letter again replaces it. Raises OSError at the start."""

    def __init__(self, folder: Path, sender: Sender) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._sender = sender

    async def send(self, letter: Letter) -> None:
        """Return once the file is on disk, whole. Raises MailNotSent."""
        mail = to_mime(letter, self._sender, datetime.now(UTC))
        try:
            await asyncio.to_thread(self._write, letter.key, mail)
        except OSError as error:
            log.warning("mail not sent", error=type(error).__name__, errno=error.errno)
            raise MailNotSent("the outbox can't be written") from error

    def _write(self, key: str, mail: bytes) -> None:
        """Readers see no file or a whole one, and a crash after this returns loses nothing."""
        temporary = self._folder / f".{key}.{uuid.uuid4().hex}.tmp"
        try:
            with temporary.open("xb") as file:
                file.write(mail)
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(self._folder / f"{key}.eml")
        except OSError:
            with contextlib.suppress(OSError):
                temporary.unlink()
            raise
        self._sync_folder()

    def _sync_folder(self) -> None:
        descriptor = os.open(self._folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
