"""PostgreSQL servers for faults: killed with all their processes at once, and copied as standbys."""

import asyncio
import os
import shutil
import signal
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Self

from typing_extensions import override

from shop_cli.local.postgres import Postgres

_POLL_SECONDS = 0.02


class FaultyPostgres(Postgres):
    """A server whose `kill` ends all its processes at once (SIGKILL), and that can be a standby."""

    _killed: frozenset[int] = frozenset()

    @classmethod
    async def clone(cls, folder: Path, port: int, settings: Mapping[str, str], primary: str) -> Self:
        """Create a standby of the server at the URL `primary`, without starting it."""
        server = cls(folder, port, settings)
        await server.clone_again(primary)
        return server

    async def clone_again(self, primary: str) -> None:
        """Replace all data by a copy of the server at the URL `primary`, and become its standby at the next start."""
        shutil.rmtree(self.data, ignore_errors=True)
        options = ["--checkpoint=fast", "--no-sync", "--write-recovery-conf"]
        await self.run("pg_basebackup", "-d", primary, "-D", str(self.data), *options)

    @override
    def kill(self) -> None:
        # Its children would finish their statements if only the parent were killed; stopped, it starts no further ones.
        self.pause()
        self._killed = self._children()
        for pid in self._killed:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        super().kill()

    @override
    async def wait(self) -> int:
        status = await super().wait()
        while any(map(_is_running, self._killed)):  # noqa: ASYNC110 - processes that are not our children
            await asyncio.sleep(_POLL_SECONDS)
        return status

    def _children(self) -> frozenset[int]:
        try:
            return frozenset(int(pid) for pid in Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text().split())
        except OSError:  # it has ended, or this system has no such file: then the children end soon after their parent
            return frozenset()


def _is_running(pid: int) -> bool:
    """Return whether a process exists and is not a zombie, which has released all its memory."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state not in {"Z", "X"}
