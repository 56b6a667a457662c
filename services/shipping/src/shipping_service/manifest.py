"""The manifest: accepted shipments in an append-only file, one JSON object per line.

A line has `tracking_id`, `key`, `street_address`, `items` (product id and quantity) and `time`. Two lines with the same
tracking id are one shipment that was requested twice. A line torn by a crash is not valid JSON; its shipment was never
confirmed to the caller.
"""

import errno
import os
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from io import FileIO
from pathlib import Path

import orjson
from typing_extensions import override

from chassis.group_commit import GroupCommit
from shipping_service.domain import Manifest, ManifestUnavailable, Shipment


@asynccontextmanager
async def open_manifest(path: Path | None) -> AsyncIterator[Manifest]:
    """Open the manifest file and create it with its folder if missing. Without a path, record nothing."""
    if path is None:
        yield NullManifest()
        return
    manifest = ManifestFile(path)
    try:
        yield manifest
    finally:
        await manifest.close()


class NullManifest(Manifest):
    """Records nothing, for a shop whose carrier needs no manifest."""

    @override
    async def append(self, shipment: Shipment) -> None:
        pass


class ManifestFile(Manifest):
    """Appends shipments to a file."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = path.open("a+b", buffering=0)
        self._is_torn = not _ends_with_newline(self._file)
        self._commits = GroupCommit(self._write)

    @override
    async def append(self, shipment: Shipment) -> None:
        try:
            await self._commits.run(_line(shipment))
        except OSError as error:
            raise ManifestUnavailable("the shipment could not be recorded") from error

    async def close(self) -> None:
        """Finish pending writes and close the file."""
        await self._commits.close()
        self._file.close()

    def _write(self, lines: Sequence[bytes]) -> Sequence[None]:
        """Append and flush the lines; on a new line even if a crash or a full disk left an incomplete one."""
        block = b"\n" * self._is_torn + b"".join(lines)
        self._is_torn = True
        if self._file.write(block) != len(block):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        os.fsync(self._file.fileno())
        self._is_torn = False
        return [None] * len(lines)


def _ends_with_newline(file: FileIO) -> bool:
    size = file.seek(0, os.SEEK_END)
    file.seek(max(size - 1, 0))
    return file.read(1) in {b"", b"\n"}


def _line(shipment: Shipment) -> bytes:
    entry = {
        "tracking_id": shipment.tracking_id,
        "key": shipment.key,
        "street_address": shipment.parcel.address.street_address,
        "items": [{"product_id": item.product_id, "quantity": item.quantity} for item in shipment.parcel.items],
        "time": datetime.now(UTC).isoformat(timespec="milliseconds"),
    }
    return orjson.dumps(entry, option=orjson.OPT_APPEND_NEWLINE)
