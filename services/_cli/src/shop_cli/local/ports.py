"""Finds free ports for shops that run side by side, and reports ports that are in use.

Don't let the kernel pick a port: it may give the same port to an outgoing connection before the service listens on
it. Instead, pick ports below the kernel's range for outgoing connections. To keep other shops from picking the same
port, lock it with a UDP socket: services use only TCP, and the kernel closes the socket when the process ends.
"""

import errno
import random
import socket
import sys
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress

from chassis.errors import FailedPrecondition, ResourceExhausted
from shop_cli.local.workspace import OWN_COMMAND

HOST = "127.0.0.1"
_FIRST, _LAST = 15_000, 32_000
_TRIES = 1_000


class PortInUse(FailedPrecondition):
    """Another program listens on a port that a service needs."""


def require_free(port: int, name: str) -> None:
    """Raise PortInUse if another program listens on a port. The message mentions `name`, such as `cart-internal`."""
    if not _is_free(port):
        # With this offset, every port is outside the range that Linux uses for outgoing connections (32,768 to 60,999).
        advice = f"try `{OWN_COMMAND} up --port-offset 11000`, or free ports with `--any-ports`"
        raise PortInUse(f"{name}: port {port} is in use by another program; {advice}", metadata={"port": str(port)})


@contextmanager
def kept_from_connections(ports: Iterable[int]) -> Iterator[None]:
    """Keep Linux from using these ports for outgoing connections. Services can still listen on them."""
    with ExitStack() as stack:
        if sys.platform == "linux":  # on macOS, no service could listen on a port that is bound here
            for port in ports:
                bound = stack.enter_context(socket.socket())
                bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                bound.bind((HOST, port))
        yield


@contextmanager
def reserved(count: int) -> Iterator[list[int]]:
    """Reserve free ports until the context exits. Raise ResourceExhausted if there are too few free ports."""
    with ExitStack() as locks:
        yield [_reserve(locks) for _ in range(count)]


def _reserve(locks: ExitStack) -> int:
    for port in random.sample(range(_FIRST, _LAST), _TRIES):
        lock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        with suppress(OSError):
            lock.bind((HOST, port))
            if _is_free(port):
                locks.enter_context(lock)
                return port
        lock.close()
    message = f"no free port among {_TRIES} tried between {_FIRST} and {_LAST}"
    raise ResourceExhausted(message, reason="NO_FREE_PORT")


def _is_free(port: int) -> bool:
    for family, host in ((socket.AF_INET, HOST), (socket.AF_INET6, "::1")):  # `localhost` may resolve to either address
        try:
            with socket.socket(family) as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # ignore closed connections in TIME_WAIT
                probe.bind((host, port))
        except OSError as error:
            if error.errno not in (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT):  # both errors mean IPv6 is unavailable
                return False
    return True
