"""The shipments that were accepted, in a file that only grows: one JSON object a line.

A line has `tracking_id`, `key`, `street_address`, `items` (product id and quantity) and `time`. A tracking id that is
there twice is one shipment that was asked for twice. A line that a crash tore apart is no JSON, and nobody was told of
its shipment.
"""

import errno
import os
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from io import FileIO
from pathlib import Path

import orjson

from chassis.group_commit import GroupCommit
from shipping_service.domain import Manifest, ManifestUnavailable, Shipment


@asynccontextmanager
async def open_manifest(path: Path | None) -> AsyncIterator[Manifest]:
    """The manifest in a file, which is created with its folder if need be; without a path one that keeps nothing."""
    if path is None:
        yield NoManifest()
        return
    manifest = ManifestFile(path)
    try:
        yield manifest
    finally:
        await manifest.close()


class NoManifest:
    """For a shop whose carrier needs no file: nothing is written down."""

    async def append(self, _shipment: Shipment) -> None:
        """Do nothing."""


class ManifestFile:
    """Appends to a file."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = path.open("a+b", buffering=0)
        self._is_torn = not _ends_a_line(self._file)
        self._commits = GroupCommit(self._write)

    async def append(self, shipment: Shipment) -> None:
        """Return when the shipment is on disk; raises ManifestUnavailable if it can't be."""
        try:
            await self._commits.run(_line(shipment))
        except OSError as error:
            raise ManifestUnavailable("the shipment could not be written down") from error

    async def close(self) -> None:
        """Finish what was begun and close the file."""
        await self._commits.close()
        self._file.close()

    def _write(self, lines: Sequence[bytes]) -> Sequence[None]:
        """Append and flush the lines, on a new line even where a crash or a full disk left half a one."""
        block = b"\n" * self._is_torn + b"".join(lines)
        self._is_torn = True
        if self._file.write(block) != len(block):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        os.fsync(self._file.fileno())
        self._is_torn = False
        return [None] * len(lines)


def _ends_a_line(file: FileIO) -> bool:
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
