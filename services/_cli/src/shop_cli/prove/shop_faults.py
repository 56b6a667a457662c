"""How each kind of fault is done to a shop under test."""

import asyncio
import resource
import sqlite3
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from typing import cast

from chassis.database import sqlite_path
from shop_cli.local.control import ControllableProcess
from shop_cli.local.processes import Process, ProcessDied
from shop_cli.local.workspace import internal_name
from shop_cli.prove import coverage
from shop_cli.prove.fault_plan import Fault, FaultKind
from shop_cli.prove.mail_relay import MailRelay, RelayMode
from shop_cli.prove.peer_stubs import PeerStubs
from shop_cli.prove.postgres_cluster import PostgresCluster
from shop_cli.prove.tcp_proxy import Mode, TcpProxy

_DELAY_SECONDS = 0.15
_REACH_SECONDS = 3.0
_FREE_BYTES = 16_384
_LOCK_SECONDS = 5.0
_SLOW_SECONDS, _COLLECT_SECONDS = 0.6, 0.3
"""How long requests are delayed, so that many are on their way, and then held, before their clients are cut off."""

STALLED_CHARGE, STALLED_FENCE = "checkout.charge.before", "checkout.resolve.after"
_STALLS = 2.5
"""The duration of the fault in stalls: an order has a stalled charge, a takeover, and the next charge."""

_FENCE_SHARE = 2 / 3
"""Of the stall of a charge. An order that is taken over when its lease expires is then ended behind the fence while its
first worker, which has met the fence, stalls before its next charge."""


class ShopFaults:
    """Injects faults into processes.

    Args:
        processes: by the names that faults have as targets.
        links: the proxies through which checkout calls its peers, by the names of the peers' ports.
        stubs: answer instead of a peer.
        relay: to which the email service sends.
        ready_seconds: how long a process may take to be ready again.

    Attributes:
        effects: how often a fault had the effect that it is meant to have, by the names of `coverage`.
    """

    def __init__(
        self,
        processes: Mapping[str, ControllableProcess],
        links: Mapping[str, TcpProxy],
        stubs: PeerStubs,
        relay: MailRelay,
        ready_seconds: float,
    ) -> None:
        self.effects: Counter[str] = Counter()
        self._processes = processes
        self._links = links
        self._stubs = stubs
        self._relay = relay
        self._ready_seconds = ready_seconds

    async def inject(self, fault: Fault) -> None:
        """Inject a fault; return once its target is ready again."""
        match fault.kind:
            case FaultKind.NETWORK:
                await _disturb(self._links_to(fault.target), cast("Mode", fault.detail), fault.seconds)
            case FaultKind.MAIL_RELAY:
                self._relay.mode = cast("RelayMode", fault.detail)
                await asyncio.sleep(fault.seconds)
                self._relay.mode = "accept"
            case FaultKind.UNIMPLEMENTED:
                await _replace(self._links_to(fault.target), self._stubs.unimplemented, fault.seconds)
            case FaultKind.REFUSAL:
                # Its internal services are still those of the real one, as after a change of its rules.
                link = self._links[fault.target]
                released = await _cut_off_clients(link)
                await _replace([link], self._stubs.refusing[fault.target], fault.seconds)
                released.set()
            case FaultKind.LATE:
                link = self._links[fault.target]
                released = await _cut_off_clients(link)
                await _disturb([link], "reset", fault.seconds)
                released.set()
            case _:
                process = self._processes[fault.target]
                await self._inject_into(process, fault)
                await process.wait_until_serving(self._ready_seconds)

    async def _inject_into(self, process: ControllableProcess, fault: Fault) -> None:
        match fault.kind:
            case FaultKind.PAUSE:
                process.pause()
                await asyncio.sleep(fault.seconds)
                process.resume()
            case FaultKind.STALL if isinstance(process, Process):
                await self._stall_workers(process, fault.seconds)
            case FaultKind.FULL_DISK if isinstance(process, Process):
                with _full_disk(process):
                    await asyncio.sleep(fault.seconds)
            case FaultKind.HUNG_DATABASE if isinstance(process, Process):
                with _locked(process.environment["DATABASE_URL"]):
                    await asyncio.sleep(fault.seconds)
            case FaultKind.FAILOVER if isinstance(process, PostgresCluster):
                self.effects[coverage.LAGGING_FAILOVERS] += await process.fail_over(fault.seconds) > 0
            case FaultKind.KILL_AT_FAILPOINT if isinstance(process, Process):
                has_died = await self._dies_at(process, fault.detail)
                self.effects[coverage.DEATHS_AT_FAILPOINTS] += has_died
                await process.start()
            case _:
                process.kill()
                await process.wait()
                await asyncio.sleep(fault.seconds)
                await process.start()

    async def _stall_workers(self, process: Process, seconds: float) -> None:
        """Restart a checkout so that its workers stall before charges and before fences are recorded; later without."""
        process.kill()
        await process.wait()
        await process.start(
            FAILPOINTS=f"{STALLED_CHARGE}=stall:{seconds},{STALLED_FENCE}=stall:{seconds * _FENCE_SHARE}"
        )
        await process.wait_until_serving(self._ready_seconds)
        await asyncio.sleep(_STALLS * seconds)
        process.kill()
        await process.wait()
        await process.start()

    async def _dies_at(self, process: Process, failpoint: str) -> bool:
        """Restart a process so that it dies at a failpoint, and wait until it ends; return whether it got there."""
        process.kill()
        await process.wait()
        await process.start(FAILPOINTS=f"{failpoint}=kill*1")
        try:
            await process.wait_until_serving(self._ready_seconds)
            await asyncio.wait_for(process.wait(), _REACH_SECONDS)
        except ProcessDied:
            return True
        except TimeoutError:
            process.kill()
            await process.wait()
            return False
        return True

    def _links_to(self, peer: str) -> list[TcpProxy]:
        return [link for name, link in self._links.items() if name in {peer, internal_name(peer)}]


async def _disturb(links: Sequence[TcpProxy], mode: Mode, seconds: float) -> None:
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


async def _cut_off_clients(link: TcpProxy) -> asyncio.Event:
    """Delay and hold requests, then cut off their clients; the requests arrive once the returned event is set."""
    link.set_mode("delay", _DELAY_SECONDS)
    await asyncio.sleep(_SLOW_SECONDS)
    link.set_mode("blackhole")
    await asyncio.sleep(_COLLECT_SECONDS)
    released = link.cut_off_clients()
    link.set_mode("pass")
    return released


@contextmanager
def _full_disk(process: Process) -> Iterator[None]:
    """Limit the size of a process's files to little more than that of its log, so that writes to its database fail."""
    pid = process.pid
    if pid is None:
        raise AssertionError
    before = resource.prlimit(pid, resource.RLIMIT_FSIZE)
    size = process.log_path.stat().st_size + _FREE_BYTES
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.prlimit(pid, resource.RLIMIT_FSIZE, before)


@contextmanager
def _locked(database_url: str) -> Iterator[None]:
    """Hold the lock that a SQLite database has for all its writers."""
    path = sqlite_path(database_url)
    if path is None:
        raise AssertionError
    with closing(sqlite3.connect(path, isolation_level=None, timeout=_LOCK_SECONDS)) as connection:
        connection.execute("BEGIN IMMEDIATE")
        yield
        connection.execute("ROLLBACK")


async def _replace(links: Sequence[TcpProxy], address: str, seconds: float) -> None:
    """Connect callers to another address for a time."""
    originals = [link.target for link in links]
    for link in links:
        link.redirect(address)
    try:
        await asyncio.sleep(seconds)
    finally:
        for link, original in zip(links, originals, strict=True):
            link.redirect(original)
