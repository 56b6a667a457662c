import asyncio
import codecs
import gc
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Generic, TypeVar

import structlog

log = structlog.get_logger()

T = TypeVar("T")

_CHECK_INTERVAL_SECONDS = 1.0
# During a reload, calls wait this long for the interpreter's lock, each one dozens of times. With the default of 5 ms,
# health checks took up to 230 ms while 10,000 products were reloaded; with this value, up to 75 ms.
_RELOAD_SWITCH_SECONDS = 0.0005


class DataFile(Generic[T]):
    """A data file that is reloaded when it changes. The constructor raises OSError if `parse` raises ValueError."""

    def __init__(self, path: Path, parse: Callable[[bytes], T]) -> None:
        self._path = path
        self._parse = parse
        self._version = self._read_version()
        try:
            self.value = self._load()
        except ValueError as error:
            raise OSError(f"{path}: {error}") from error

    async def watch(self) -> None:
        interval = sys.getswitchinterval()
        while True:
            await asyncio.sleep(_CHECK_INTERVAL_SECONDS)
            with suppress(OSError):
                if self._read_version() == self._version:
                    continue
            gc.disable()  # a garbage collection during the reload would block the event loop
            sys.setswitchinterval(_RELOAD_SWITCH_SECONDS)
            try:
                await asyncio.to_thread(self.refresh)  # use a thread, because parsing 10,000 products takes seconds
            finally:
                gc.enable()
                sys.setswitchinterval(interval)

    def refresh(self) -> None:
        """Reload the file if it has changed. If it is missing or invalid, log a warning and keep the old value."""
        try:
            if (version := self._read_version()) == self._version:
                return
            self._version = version  # set before parsing, so that an invalid version is logged only once
            self.value = self._load()
            gc.freeze()  # exempts the value's objects from later garbage collections
            log.info("data file reloaded", file=self._path.name)
        except (OSError, ValueError) as error:
            log.warning("data file rejected, using the previous version", file=self._path.name, problem=str(error))

    def _load(self) -> T:
        # Editors on Windows may begin a file with a byte order mark.
        return self._parse(self._path.read_bytes().removeprefix(codecs.BOM_UTF8))

    def _read_version(self) -> tuple[int, int, int]:
        # Kubernetes updates a ConfigMap by switching a symbolic link, which may change nothing but the inode.
        stat = self._path.stat()
        return stat.st_mtime_ns, stat.st_size, stat.st_ino
