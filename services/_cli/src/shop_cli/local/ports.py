"""Finds free ports for shops that run side by side, and reports clearly when a port is in use.

Binding to port 0 and closing the socket reserves nothing: before the service binds the port, the kernel may give it to
an outgoing connection. So this module picks ports below the kernel's range for outgoing connections, and locks a port
with a UDP socket on the same number: services use only TCP, and the kernel releases the lock however its owner ends.
"""

import errno
import random
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from chassis.errors import FailedPrecondition, ResourceExhausted
from shop_cli.local.workspace import own_command

HOST = "127.0.0.1"
_FIRST, _LAST = 15_000, 32_000
_TRIES = 1_000


class PortInUse(FailedPrecondition):
    """Another program listens on a port that a service needs."""


def require_free(port: int, name: str) -> None:
    """Raise PortInUse if another program listens on a port; `name` is the port's name, such as `cart-internal`."""
    if not _is_free(port):
        # This offset moves all ports out of the range 32,768 to 60,999, which Linux uses for outgoing connections.
        advice = f"try `{own_command()} up --port-offset 11000`, or free ports with `--any-ports`"
        raise PortInUse(f"{name}: port {port} is in use by another program; {advice}", metadata={"port": str(port)})


@contextmanager
def reserved(count: int) -> Iterator[list[int]]:
    """Reserve free ports, which no other shop gets until the context exits. Raise ResourceExhausted if none is free."""
    with ExitStack() as locks:
        yield [_reserve(locks) for _ in range(count)]


def _reserve(locks: ExitStack) -> int:
    for port in random.sample(range(_FIRST, _LAST), _TRIES):
        lock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        try:
            lock.bind((HOST, port))
        except OSError:
            lock.close()
            continue
        if _is_free(port):
            locks.enter_context(lock)
            return port
        lock.close()
    message = f"no free port among {_TRIES} tried between {_FIRST} and {_LAST}"
    raise ResourceExhausted(message, reason="NO_FREE_PORT")


def _is_free(port: int) -> bool:
    for family, host in ((socket.AF_INET, HOST), (socket.AF_INET6, "::1")):  # `localhost` may mean either
        try:
            with socket.socket(family) as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # ignore closed connections in TIME_WAIT
                probe.bind((host, port))
        except OSError as error:
            if error.errno not in (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT):  # these errors mean that IPv6 is off
                return False
    return True
