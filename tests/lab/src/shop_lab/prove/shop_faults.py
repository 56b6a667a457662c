"""How each kind of fault is done to a shop under test."""

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import repeat
from typing import cast

from chassis.errors import DomainError
from checkout_service.journal.sql import PROTOCOL
from shop_cli.local.child_process import ChildProcess, ProcessDied
from shop_cli.local.processes import Process
from shop_cli.local.workspace import internal_name
from shop_internal.orders_pb2 import ListOrdersRequest, Order, OrderState
from shop_internal.orders_pb2_grpc import OrderJournalStub
from shop_kit.databases import execute
from shop_kit.smtp_relay import Inbox, RelayMode
from shop_kit.tcp_proxy import Mode, TcpProxy
from shop_lab.prove import coverage
from shop_lab.prove.fault_plan import CLOCKS, SHIPPING, Fault, FaultKind
from shop_lab.prove.progress_gate import ProgressGate
from shop_lab.world.faults import cut_off_clients, disturb, full_disk, locked, replaced, skewed_clock
from shop_lab.world.ledgers import SENT
from shop_lab.world.operators import settle_twice
from shop_lab.world.refusing_peers import DOUBTFUL_SHIPPING, OPERATORS, RefusingPeers

_REACH_SECONDS = 3.0
_REFUSALS, _POLL_SECONDS = 5, 0.1
_SUPPLY = 2 * _REFUSALS
"""Orders under way until enough are refused: about half of them go through the process with the fault."""

_MOST_ORDERS = 5 * _SUPPLY
"""A fault without an effect leaves orders to the others."""

STALLED_CHARGE, STALLED_FENCE = "checkout.charge.before", "checkout.resolve.after"
_STALLS = 2.5
"""The duration of the fault in stalls: an order has a stalled charge, a takeover, and the next charge."""

_SETTLING_SECONDS = 4.0
LATER_RELEASE, SKEWED_CLOCK = "shop_lab.world.later_release", "shop_lab.world.skewed_clock"

_FENCE_SHARE = 2 / 3
"""Of the stall of a charge. An order that is taken over when its lease expires is then ended behind the fence while its
first worker, which has met the fence, stalls before its next charge."""


@dataclass
class ShopFaults:
    """Injects faults into processes.

    Attributes:
        processes: by the names that faults have as targets.
        links: the proxies through which checkout calls its peers, by the names of the peers' ports.
        peers: answer instead of the real ones.
        inbox: of the relay to which the email service sends.
        gate: lets more orders start while a fault waits until enough of them are refused.
        journals: of the checkouts, for operators.
        orders: of the whole run.
        effects: how often a fault had the effect that it is meant to have, by the names of `coverage`.
    """

    processes: Mapping[str, ChildProcess]
    links: Mapping[str, TcpProxy]
    peers: RefusingPeers
    inbox: Inbox
    gate: ProgressGate
    journals: Sequence[OrderJournalStub]
    orders: int
    effects: Counter[str] = field(default_factory=Counter)

    async def inject(self, fault: Fault) -> None:
        """Inject a fault; return once its target is ready again."""
        match fault.kind:
            case FaultKind.NETWORK:
                await disturb(self._links_to(fault.target), cast("Mode", fault.detail), fault.seconds)
            case FaultKind.MAIL_RELAY:
                self.inbox.mode = cast("RelayMode", fault.detail)
                await asyncio.sleep(fault.seconds)
                self.inbox.mode = "accept"
            case FaultKind.UNIMPLEMENTED:
                links = self._links_to(fault.target)
                with replaced(links, *[self.peers.unimplemented] * len(links)):
                    await asyncio.sleep(fault.seconds)
            case FaultKind.REFUSAL:
                # Its internal services are still those of the real one, as after a change of its rules.
                released = await cut_off_clients(self.links[fault.target])
                with replaced([self.links[fault.target]], self.peers.refusing):
                    await asyncio.sleep(fault.seconds)
                released.set()
            case FaultKind.REFUSED_NOTIFICATIONS:
                with replaced([self.links[fault.target]], self.peers.refusing):
                    await self._wait_for_refusals(fault.target)
            case FaultKind.REFUSED_RELEASES:
                links = [self.links[fault.target], self.links[SHIPPING]]
                with replaced(links, self.peers.refusing, self.peers.refusing):
                    await self._wait_for_refusals(fault.target)
            case FaultKind.LATE:
                link = self.links[fault.target]
                released = await cut_off_clients(link)
                await disturb([link], "reset", fault.seconds)
                released.set()
            case _:
                process = self.processes[fault.target]
                await self._inject_into(process, fault)
                await _wait_until_serving(process)

    async def _inject_into(self, process: ChildProcess, fault: Fault) -> None:
        match fault.kind:
            case FaultKind.PAUSE:
                process.pause()
                await asyncio.sleep(fault.seconds)
                process.resume()
            case FaultKind.STALL if isinstance(process, Process):
                await self._stall_workers(process, fault.seconds)
            case FaultKind.UNRESOLVED_SHIPMENTS if isinstance(process, Process):
                await self._leave_shipments_unresolved(process)
            case FaultKind.OPERATORS if isinstance(process, Process):
                await self._let_operators_settle(process, fault.detail)
            case FaultKind.CLOCK if isinstance(process, Process):
                with skewed_clock(process, CLOCKS[fault.detail]) as variables:
                    module = SKEWED_CLOCK if process.environment["DATABASE_URL"].startswith("sqlite") else ""
                    await _restart(process, module, **variables)
                    await _wait_until_serving(process)
                    await asyncio.sleep(fault.seconds)
                await _restart(process)
            case FaultKind.RELEASES if isinstance(process, Process):
                both = [each for name in fault.processes if isinstance(each := self.processes.get(name), Process)]
                await self._change_release(*sorted(both, key=lambda each: each is not process), seconds=fault.seconds)
            case FaultKind.FULL_DISK if isinstance(process, Process):
                # Services also write their logs.
                with full_disk(process.pid, process.log_path):
                    await asyncio.sleep(fault.seconds)
            case FaultKind.HUNG_DATABASE if isinstance(process, Process):
                with locked(process.environment["DATABASE_URL"]):
                    await asyncio.sleep(fault.seconds)
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
        stalls = f"{STALLED_CHARGE}=stall:{seconds},{STALLED_FENCE}=stall:{seconds * _FENCE_SHARE}"
        await _restart(process, FAILPOINTS=stalls)
        await _wait_until_serving(process)
        await asyncio.sleep(_STALLS * seconds)
        await _restart(process)

    async def _leave_shipments_unresolved(self, process: Process) -> None:
        """Restart a checkout with a shipping that cannot resolve what it has shipped; later with the real one."""
        await _restart(process, SHIPPING_ADDR=self.peers.doubtful_shipping, SHIPPING_INTERNAL_ADDR="")
        await _wait_until_serving(process)
        await self._wait_for_refusals(DOUBTFUL_SHIPPING)
        # Not killed: a checkout that was refused has yet to leave the order to an operator, and another one, whose
        # shipping can resolve it, would finish the order.
        await process.restart()

    async def _let_operators_settle(self, process: Process, failpoint: str) -> None:
        """Let operators settle orders whose charge or shipment takes long, until a few are settled or none is left."""
        await _restart(process, FAILPOINTS=f"{failpoint}=kill*1")
        await _wait_until_serving(process)
        links = [*self._links_to("payment"), *self._links_to(SHIPPING)]
        slow = asyncio.create_task(disturb(links, "delay", _SETTLING_SECONDS))
        settled, last = self.peers.refused[OPERATORS], min(self.gate.finished + _MOST_ORDERS, self.orders)
        enough = len(settled) + _REFUSALS
        while not slow.done() and len(settled) < enough and self.gate.finished < last:
            await self.gate.open_until(self.gate.finished + _SUPPLY)
            order_ids = [order.order_id for order in await self._orders_in(OrderState.ORDER_STATE_CHARGING)]
            settled.update(order_ids)
            sent = [self._tracking_ids(order_id) for order_id in order_ids]
            await asyncio.gather(*map(settle_twice, order_ids, sent, repeat(self.journals)))
            await asyncio.sleep(_POLL_SECONDS)
        await slow
        await _restart(process)
        await _wait_until_serving(process)
        while await self._orders_in(OrderState.ORDER_STATE_SETTLING):  # noqa: ASYNC110 - polls a service
            await asyncio.sleep(_POLL_SECONDS)

    def _tracking_ids(self, order_id: str) -> list[str]:
        url = cast("Process", self.processes[SHIPPING]).environment["DATABASE_URL"]
        return [tracking_id for (tracking_id,) in execute(url, SENT.format(order_id))]

    async def _orders_in(self, state: "OrderState.ValueType") -> Sequence[Order]:
        """Return a few orders in a state."""
        for journal in self.journals:
            with suppress(DomainError):
                return (await journal.ListOrders(ListOrdersRequest(states=[state], limit=_REFUSALS))).orders
        return []

    async def _change_release(self, first: Process, second: Process, *, seconds: float) -> None:
        """Upgrade two checkouts, one after the other, and roll the first one back, too late; later restore its journal.

        The protocol number must rise once no replica of this release is left.
        """
        url, numbers = first.environment["DATABASE_URL"], []
        for process in (first, second):
            await _restart(process, LATER_RELEASE)
            await _wait_until_serving(process)
            await asyncio.sleep(seconds)
            numbers += execute(url, "SELECT number FROM protocol")
        self.effects[coverage.UPGRADES] += numbers == [(PROTOCOL,), (PROTOCOL + 1,)]
        await _restart(first)
        await asyncio.sleep(2 * seconds)
        for process in (first, second):
            process.kill()
            await process.wait()
        execute(url, f"UPDATE protocol SET number = {PROTOCOL}")  # noqa: S608 - a number
        execute(url, "UPDATE orders SET cart_etag = lower(cart_etag) WHERE cart_etag <> lower(cart_etag)")
        for process in (first, second):
            await process.start()
        await _wait_until_serving(second)

    async def _wait_for_refusals(self, port: str) -> None:
        """Let orders start until a few more of them are refused at a port, or many have not been, or none is left."""
        refused = self.peers.refused[port]
        enough, last = len(refused) + _REFUSALS, min(self.gate.finished + _MOST_ORDERS, self.orders)
        while len(refused) < enough and self.gate.finished < last:
            await self.gate.open_until(self.gate.finished + _SUPPLY)
            await asyncio.sleep(_POLL_SECONDS)

    async def _dies_at(self, process: Process, failpoint: str) -> bool:
        """Restart a process so that it dies at a failpoint, and wait until it ends; return whether it got there."""
        await _restart(process, FAILPOINTS=f"{failpoint}=kill*1")
        try:
            await process.wait_until_serving()
            await asyncio.wait_for(process.wait(), _REACH_SECONDS)
        except ProcessDied:
            return True
        except TimeoutError:
            process.kill()
            await process.wait()
            return False
        return True

    def _links_to(self, peer: str) -> list[TcpProxy]:
        return [link for name, link in self.links.items() if name in {peer, internal_name(peer)}]


async def _wait_until_serving(process: ChildProcess) -> None:
    """Wait until a process serves. If it has died, start it again, as its database may have restarted meanwhile."""
    with suppress(ProcessDied):
        await process.wait_until_serving()
        return
    await process.start()
    await process.wait_until_serving()


async def _restart(process: Process, module: str = "", **variables: str) -> None:
    """Kill a process and start it again, with another module or additional environment variables until it ends."""
    process.kill()
    await process.wait()
    program = process.program
    process.program = replace(program, module=module or program.module)
    await process.start(**variables)
    process.program = program
