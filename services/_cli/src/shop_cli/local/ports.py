"""Free ports for shops that run beside each other, and a clear word for a port that is taken.

A free port can't be found by binding to port 0 and letting go: until its service binds, any connection of the machine
may take it. So ports come from below the range of outgoing connections, each locked by a file while it is in use.
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
    """Something listens on a port that a service needs."""


class NoFreePort(ResourceExhausted):
    """A thousand ports in a row were taken."""


def require_free(port: int, name: str) -> None:
    """Raise PortInUse, naming the port and who needs it, when something listens there."""
    if not _is_free(port):
        raise PortInUse(f"{name}: port {port} is in use by another program", metadata={"port": str(port)})


@contextmanager
def reserved(count: int) -> Iterator[list[int]]:
    """Free ports that no other shop of this machine takes, until the context is left."""
    with ExitStack() as held:
        yield [_reserve(held) for _ in range(count)]


def _reserve(held: ExitStack) -> int:
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
            held.enter_context(lock)
            return port
        lock.close()
    raise NoFreePort("found no free port")


def _is_free(port: int) -> bool:
    with socket.socket() as tried:
        tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # closed connections don't count
        try:
            tried.bind((HOST, port))
        except OSError:
            return False
    return True
