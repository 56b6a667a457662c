"""The outbox: a folder to which e-mails are written when there is no relay."""

import asyncio
import contextlib
import os
import uuid
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import chain
from pathlib import Path

import structlog
from typing_extensions import override

from chassis.group_commit import GroupCommit
from chassis.telemetry import Telemetry
from email_service.domain import (
    ConfirmationEmail,
    Mailer,
    MailIndex,
    MailNotSent,
    MailRecord,
    MailState,
    StoredMail,
    key_of,
)
from email_service.mime import Sender, to_mime

log = structlog.get_logger()

_MAX_OPEN_FILES = 100


class Outbox(Mailer, MailIndex):
    """A folder with one .eml file per order, which a repeated e-mail leaves as it is.

    Raises OSError if the folder can't be created.
    """

    def __init__(self, folder: Path, sender: Sender, telemetry: Telemetry | None = None) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._sender = sender
        self._writes = GroupCommit[Sequence[_File], None](self._write, "outbox", telemetry)

    @override
    async def accept(self, emails: Sequence[ConfirmationEmail]) -> Collection[str]:
        now = datetime.now(UTC)
        files = [_File(self._path(email.order_id).name, to_mime(email, self._sender, now)) for email in emails]
        try:
            await self._writes.run(files)
        except OSError as error:
            log.warning("email not stored", error=type(error).__name__, errno=error.errno)
            raise MailNotSent("the outbox can't be written") from error
        return ()

    @override
    async def find(self, order_id: str) -> MailRecord | None:
        return MailRecord(MailState.SENT) if self._path(order_id).exists() else None

    @override
    async def read(self, order_id: str) -> StoredMail | None:
        try:
            message = await asyncio.to_thread(self._path(order_id).read_bytes)
        except FileNotFoundError:
            return None
        return StoredMail(MailRecord(MailState.SENT), message)

    @property
    @override
    def complete_since(self) -> float:
        return 0.0

    def _path(self, order_id: str) -> Path:
        return self._folder / f"{key_of(order_id)}.eml"

    async def close(self) -> None:
        """Finish pending writes."""
        await self._writes.close()

    def _write(self, batches: Sequence[Sequence["_File"]]) -> Sequence[None]:
        """Write missing files atomically: readers never see a partial one. All are durable when this returns."""
        missing: dict[str, _File] = {}
        for file in chain.from_iterable(batches):
            if not (self._folder / file.name).exists():
                missing.setdefault(file.name, file)
        files = [*missing.values()]
        for start in range(0, len(files), _MAX_OPEN_FILES):
            self._write_files(files[start : start + _MAX_OPEN_FILES])
        self._sync_folder()
        return [None] * len(batches)

    def _write_files(self, files: Sequence["_File"]) -> None:
        temporaries = [self._folder / f".{file.name}.{uuid.uuid4().hex}.tmp" for file in files]
        try:
            _write_durably(temporaries, files)
            for temporary, file in zip(temporaries, files, strict=True):
                temporary.replace(self._folder / file.name)
        except OSError:
            for temporary in temporaries:
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
class _File:
    name: str
    content: bytes


def _write_durably(paths: Sequence[Path], files: Sequence[_File]) -> None:
    with contextlib.ExitStack() as stack:
        opened = [stack.enter_context(path.open("xb")) for path in paths]
        for new, file in zip(opened, files, strict=True):
            new.write(file.content)
            new.flush()
        # After all writes: the file system then flushes its journal less often, which saves a third of the CPU.
        for new in opened:
            os.fsync(new.fileno())
