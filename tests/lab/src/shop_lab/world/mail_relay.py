"""An SMTP relay on loopback that can be slow, refuse temporarily, or hang up after it has accepted a mail."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Literal

from shop_cli.local.ports import HOST

RelayMode = Literal["accept", "slow", "defer", "hang up"]
_SLOW_SECONDS = 3.0
_MAX_BYTES = 1_000_000
_OK, _DEFERRED = b"250 OK\r\n", b"451 try again later\r\n"
_RESPONSES = {b"DATA": b"354 end with a dot\r\n", b"QUIT": b"221 bye\r\n"}


class MailRelay:
    """Writes each mail that it accepts to a file.

    Args:
        folder: of the files; created if it does not exist.

    Attributes:
        mode: how it treats the mails that arrive from now on.
    """

    def __init__(self, folder: Path) -> None:
        self.mode: RelayMode = "accept"
        self.url = ""
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self._accepted = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection."""
        with suppress(OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            writer.write(b"220 relay\r\n")
            while line := await reader.readline():
                command = line[:4].upper().strip()
                writer.write(_RESPONSES.get(command, _OK))
                if command == b"QUIT" or (command == b"DATA" and not await self._receive(reader, writer)):
                    break
                await writer.drain()
        writer.close()

    async def _receive(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Receive a mail and respond. Return whether the connection is to be continued."""
        mail = await reader.readuntil(b"\r\n.\r\n")
        if self.mode == "slow":
            await asyncio.sleep(_SLOW_SECONDS)
        if self.mode == "defer":
            writer.write(_DEFERRED)
            return True
        self._accepted += 1
        text = mail.removesuffix(b".\r\n").replace(b"\r\n..", b"\r\n.")
        (self._folder / f"{self._accepted:08d}.eml").write_bytes(text)
        if self.mode == "hang up":
            return False
        writer.write(_OK)
        return True


@asynccontextmanager
async def mail_relay(folder: Path) -> AsyncIterator[MailRelay]:
    """Run a relay on a free port while in the context; write accepted mails to the folder."""
    relay = MailRelay(folder)
    server = await asyncio.start_server(relay.serve, HOST, 0, limit=_MAX_BYTES)
    relay.url = f"smtp://{HOST}:{server.sockets[0].getsockname()[1]}"
    try:
        yield relay
    finally:
        server.close()
