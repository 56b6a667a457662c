"""Free ports for shops that run side by side, and a clear error for a port that is in use.

Binding to port 0 and closing the socket does not reserve a port: until the service binds it, any outgoing connection
of this machine may be given the same one. So ports come from below the range of outgoing connections, and each is
locked by a file while it is in use.
"""

import fcntl
import os
import random
import socket
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from chassis.errors import FailedPrecondition, ResourceExhausted

HOST = "127.0.0.1"
_FIRST, _LAST = 15_000, 32_000
_TRIES = 1_000


class PortInUse(FailedPrecondition):
    """Another program listens on a port that a service needs."""


class NoFreePort(ResourceExhausted):
    """Every port that was tried is in use."""


def require_free(port: int, name: str) -> None:
    """Raise PortInUse, with the port and the name of the service that needs it, if another program listens there."""
    if not _is_free(port):
        raise PortInUse(f"{name}: port {port} is in use by another program", metadata={"port": str(port)})


@contextmanager
def reserved(count: int) -> Iterator[list[int]]:
    """Reserve free ports, which no other shop on this machine uses until the context is left. Raise NoFreePort."""
    with ExitStack() as locks:
        yield [_reserve(locks) for _ in range(count)]


def _reserve(locks: ExitStack) -> int:
    folder = Path(tempfile.gettempdir()) / f"shop-ports-{os.getuid()}"
    folder.mkdir(exist_ok=True)
    for port in random.sample(range(_FIRST, _LAST), _TRIES):
        lock = (folder / str(port)).open("w")
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            lock.close()
            continue
        if _is_free(port):
            locks.enter_context(lock)
            return port
        lock.close()
    raise NoFreePort(f"no free port among {_TRIES} tried between {_FIRST} and {_LAST}")


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # ignore closed connections in TIME_WAIT
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
    return True
