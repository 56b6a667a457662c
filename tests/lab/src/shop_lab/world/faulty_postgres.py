"""PostgreSQL servers that are copied as standbys."""

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Self

from shop_cli.local.postgres import Postgres


class FaultyPostgres(Postgres):
    """A server that can be a standby."""

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
