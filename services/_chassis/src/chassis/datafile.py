"""A data file that may change while the service runs: a good new version is taken, a broken one is refused."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Generic, TypeVar

import structlog

log = structlog.get_logger()

T = TypeVar("T")

_CHECK_INTERVAL_SECONDS = 1.0


class DataFile(Generic[T]):
    """What a file holds, parsed.

    Args:
        path: the file; read at once, so that a broken one stops the start, with an OSError that says what is wrong.
        parse: turns its bytes into the value; raises ValueError saying what is wrong.
    """

    def __init__(self, path: Path, parse: Callable[[bytes], T]) -> None:
        self._path = path
        self._parse = parse
        self._stamp = self._read_stamp()
        try:
            self.value = parse(path.read_bytes())
        except ValueError as error:
            raise OSError(f"{path}: {error}") from error

    async def watch(self) -> None:
        """Follow the file, until cancelled."""
        while True:
            await asyncio.sleep(_CHECK_INTERVAL_SECONDS)
            self.refresh()

    def refresh(self) -> None:
        """Read the file again if it changed. A broken or missing one is logged, and the value stays."""
        try:
            stamp = self._read_stamp()
            if stamp == self._stamp:
                return
            self._stamp = stamp
            self.value = self._parse(self._path.read_bytes())
            log.info("data file read anew", file=self._path.name)
        except (OSError, ValueError) as error:
            log.warning("data file refused, the old one stays", file=self._path.name, problem=str(error))

    def _read_stamp(self) -> tuple[int, int, int]:
        """A ConfigMap changes by swapping a link, which changes the inode but perhaps not the time."""
        stat = self._path.stat()
        return stat.st_mtime_ns, stat.st_size, stat.st_ino
