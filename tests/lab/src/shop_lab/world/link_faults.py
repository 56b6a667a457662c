"""What faults do to the proxies through which checkout calls its peers."""

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from shop_lab.world.tcp_proxy import Mode, TcpProxy

_DELAY_SECONDS = 0.15
_SLOW_SECONDS, _COLLECT_SECONDS = 0.6, 0.3
"""How long requests are delayed, so that many are on their way, and then held, before their clients are cut off."""


async def disturb(links: Sequence[TcpProxy], mode: Mode, seconds: float) -> None:
    """Delay, duplicate, cut or silence the connections of all proxies for a time."""
    if mode == "duplicate":  # applies to new connections only
        _set_modes(links, "reset")
    _set_modes(links, mode)
    await asyncio.sleep(seconds)
    if mode == "duplicate":
        _set_modes(links, "reset")
    _set_modes(links, "pass")


def _set_modes(links: Sequence[TcpProxy], mode: Mode) -> None:
    for link in links:
        link.set_mode(mode, _DELAY_SECONDS)


async def cut_off_clients(link: TcpProxy) -> asyncio.Event:
    """Delay and hold requests, then cut off their clients; the requests arrive once the returned event is set."""
    link.set_mode("delay", _DELAY_SECONDS)
    await asyncio.sleep(_SLOW_SECONDS)
    link.set_mode("blackhole")
    await asyncio.sleep(_COLLECT_SECONDS)
    released = link.cut_off_clients()
    link.set_mode("pass")
    return released


@contextmanager
def replaced(links: Sequence[TcpProxy], *addresses: str) -> Iterator[None]:
    """Connect the callers of each proxy to another address while in the context."""
    originals = [link.target for link in links]
    for link, address in zip(links, addresses, strict=True):
        link.redirect(address)
    try:
        yield
    finally:
        for link, original in zip(links, originals, strict=True):
            link.redirect(original)
