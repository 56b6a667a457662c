"""Closes connections of gRPC servers, for which gRPC has no function, by shutting down their sockets."""

import os
import socket
import stat
from contextlib import suppress
from urllib.parse import unquote


def close_connection(peer: str) -> None:
    """Close the connection from a peer, such as `ipv4:192.0.2.7:50312` or `ipv6:%5B2001:db8::7%5D:50312`."""
    host, _, port = unquote(peer).partition(":")[2].rpartition(":")
    for number in map(int, os.listdir("/dev/fd")):  # noqa: PTH208
        with suppress(OSError, ValueError):  # the file is closed by now, or its socket has no such address
            # Never duplicate another file: closing the duplicate would release SQLite's locks on the file.
            if not stat.S_ISSOCK(os.fstat(number).st_mode):
                continue
            # As an IPv6 socket, it also returns IPv4 addresses.
            with socket.fromfd(number, socket.AF_INET6, socket.SOCK_STREAM) as found:
                address, peer_port, *_ = found.getpeername()
                if (address.removeprefix("::ffff:"), peer_port) == (host.strip("[]"), int(port)):
                    found.shutdown(socket.SHUT_RDWR)
