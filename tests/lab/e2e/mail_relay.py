"""An SMTP relay that accepts every letter and forgets it: `python mail_relay.py PORT`, until it is killed."""

import asyncio
import contextlib
import sys

_RESPONSES = {
    b"EHLO": b"250 relay\r\n",
    b"MAIL": b"250 OK\r\n",
    b"RCPT": b"250 OK\r\n",
    b"RSET": b"250 OK\r\n",
    b"NOOP": b"250 OK\r\n",
    b"DATA": b"354 end with a dot\r\n",
    b"QUIT": b"221 bye\r\n",
}


async def serve_client(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answer the commands of a connection until its client leaves."""
    writer.write(b"220 relay\r\n")
    with contextlib.closing(writer), contextlib.suppress(ConnectionError):
        while line := await reader.readline():
            command = line[:4].upper()
            writer.write(_RESPONSES.get(command, b"502 not implemented\r\n"))
            await writer.drain()
            if command == b"DATA":
                await reader.readuntil(b"\r\n.\r\n")
                writer.write(b"250 accepted\r\n")
            if command == b"QUIT":
                break


async def main(port: int) -> None:
    """Serve on all addresses."""
    server = await asyncio.start_server(serve_client, "", port, limit=1 << 20)
    print("relay listens", flush=True)  # noqa: T201
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1])))
