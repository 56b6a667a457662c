"""The simulated shop: its disks, its processes and the faults that befall them."""

import asyncio
from contextlib import AsyncExitStack

from chassis.errors import DomainError
from checkout_service.journal.sql import PROTOCOL
from shop_internal.orders_pb2_grpc import OrderJournalStub
from shop_lab.simulation import services
from shop_lab.simulation.clock import VirtualLoop
from shop_lab.simulation.disk import SimulatedDatabase
from shop_lab.simulation.faults import Faults
from shop_lab.simulation.network import Network
from shop_lab.simulation.processes import Process
from shop_lab.world.ledgers import SENT
from shop_lab.world.operators import settle_twice

CHECKOUTS = ("checkout-1", "checkout-2")
PROCESSES = (*CHECKOUTS, "payment", "shipping", "cart", "email")
DATABASES = ("checkout", "payment", "shipping")
_OPEN = "SELECT order_id FROM orders WHERE state IN ('CHARGING', 'VOIDING') ORDER BY order_id"
_IS_RAISED = f"SELECT 1 FROM protocol WHERE number > {PROTOCOL}"  # noqa: S608 - a number
_READS = "reads"
_READ_ADDRESSES = frozenset({"product-catalog", "currency"})


class SimulatedShop:
    """All services, their disks and their network.

    Args:
        trace: receives everything that happens, in order.

    Attributes:
        loses_commits: whether the journal has lost any.
        refuses: whether a peer has refused anything.
        operators: their tasks, each of which settles all open orders.
        later: the checkouts that are of a later release.
    """

    def __init__(self, loop: VirtualLoop, faults: Faults, trace: list[str]) -> None:
        self.faults = faults
        self.loses_commits = self.refuses = False
        self.operators: list[asyncio.Task[None]] = []
        self.later: set[str] = set()
        self._loop = loop
        self._trace = trace
        self._processes: dict[str, Process] = {}
        self.network = Network(loop, faults, self._find, self._kill_by_fate, self.record)
        self.disks = services.open_disks(loop.wall_clock)
        self.carts = services.open_carts(loop.time)
        self.spool = services.MemorySpool()
        for name in (*PROCESSES, _READS):
            self._start(name)

    @property
    def errors(self) -> list[str]:
        """The errors that nothing has handled, in words."""
        return [*self._loop.errors, *self.network.errors]

    def now(self) -> float:
        """Return the simulated seconds since the start."""
        return self._loop.time()

    def record(self, event: str) -> None:
        """Add an event to the trace."""
        self._trace.append(f"{self.now():.6f} {event}")

    def is_idle(self) -> bool:
        """Return whether all processes serve, and no call is in progress."""
        return self.network.is_idle() and all(self._processes[name].serves() for name in PROCESSES)

    def end_faults(self) -> None:
        """End all faults: restart what is down, and resume what is paused."""
        self.record("calm")
        self.faults.end()
        for disk in self.disks.values():
            disk.is_down = False
        if self.disks["checkout"].query(_IS_RAISED):
            self.later.update(CHECKOUTS)
            for name in CHECKOUTS:
                self.kill(name, 0.1)
        for name in PROCESSES:
            self._processes[name].resume()
            if not self._processes[name].serves():
                self._start(name)

    def stop_all(self) -> None:
        """Kill all processes and close the disks."""
        for process in self._processes.values():
            process.kill()
        for disk in self.disks.values():
            disk.connection.close()

    def kill(self, process: str, seconds: float) -> None:
        """Kill a process, and start it again after so many seconds."""
        killed = self._processes[process]
        if killed.alive:
            self.record(f"kill {process}")
            killed.kill()
            self._restart_after(seconds, killed)

    def _kill_by_fate(self, process: Process) -> None:
        """Kill a process unless the faults have ended: a call may have met its fate before."""
        if process.alive and not self.faults.calm:
            self.kill(process.name, self.faults.numbers_of(f"restart at {self.now()}")[0])

    def pause(self, process: str, seconds: float) -> None:
        self.record(f"pause {process}")
        self._processes[process].pause()
        self._loop.call_later(seconds, self._processes[process].resume)

    def stop(self, process: str, seconds: float) -> None:
        """Stop a process in good order, and start it again after so many seconds."""
        self.record(f"stop {process}")
        self._processes[process].stopping.set()
        self._restart_after(seconds, self._processes[process])

    def refuse(self, path: str, error: type[DomainError], seconds: float) -> None:
        """Let a peer refuse all calls of a method with an error, whatever it did before."""
        self.record(f"{path} is refused: {error.__name__}")
        self.refuses = True
        self.faults.refusals[path] = error(message="refused")
        self._loop.call_later(seconds, self.faults.refusals.pop, path, None)

    def stop_database(self, database: str, seconds: float) -> None:
        """Let a database refuse connections."""
        self.record(f"outage of the database of {database}")
        self.disks[database].is_down = True
        self._loop.call_later(seconds, setattr, self.disks[database], "is_down", False)

    def set_clock(self, database: str, hours: int, seconds: float) -> None:
        """Set the clock of a database forward, or back by negative hours, for a time; restart what uses it."""
        self._add_hours(database, hours)
        self._loop.call_later(seconds, self._add_hours, database, -hours)
        for name in PROCESSES:
            if name.startswith(database):
                self.kill(name, 0.5)

    def _add_hours(self, database: str, hours: int) -> None:
        self.record(f"the clock of the database of {database} jumps by {hours} h")
        self.disks[database].ahead_seconds += hours * 3_600

    def settle(self) -> None:
        """Let operators settle all orders whose outcome is open, two of them each order at once."""
        journals = [OrderJournalStub(self.network.channel(name, 5.0)) for name in CHECKOUTS]
        for (order_id,) in self.disks["checkout"].query(_OPEN):
            self.record(f"operators settle {order_id}")
            sent = [tracking_id for (tracking_id,) in self.disks["shipping"].query(SENT.format(order_id))]
            self.operators.append(self._loop.create_task(settle_twice(order_id, sent, journals), name="operators"))

    def upgrade(self, process: str, seconds: float) -> None:
        """Upgrade both checkouts, one after the other, and roll the first one back, too late."""
        (other,) = {*CHECKOUTS} - {process}
        for number, (name, later) in enumerate([(process, True), (other, True), (process, False)]):
            self._loop.call_later(number * seconds, self._change_release, name, later)

    def _change_release(self, name: str, later: bool) -> None:
        if not self.faults.calm:
            self.record(f"{name} is of {'a later' if later else 'this'} release")
            (self.later.add if later else self.later.discard)(name)
            self.kill(name, 0.1)

    def lose_commits(self, count: int, restart: bool) -> None:
        """Let the journal lose its last commits: with a restart of checkout (a back-up), or without (a failover)."""
        for name in CHECKOUTS if restart else ():
            self.kill(name, 0.5)
        self.loses_commits = True
        self.record(f"{self.disks['checkout'].lose(count)} commits of the journal are lost")

    def _restart_after(self, seconds: float, process: Process) -> None:
        def restart() -> None:
            if self._processes[process.name] is process:
                self._start(process.name)

        self._loop.call_later(seconds, restart)

    def _start(self, name: str) -> None:
        if name in self._processes:
            self._processes[name].kill()
        self.record(f"start {name}")
        process = self._processes[name] = Process(name)
        process.spawn(self._main(process), name)

    async def _main(self, process: Process) -> None:
        service = services.SimulatedService(self.network, process)
        async with AsyncExitStack() as stack:
            match process.name:
                case "payment":
                    service.serve(*services.payment(self._database("payment", process)))
                case "shipping":
                    service.serve(*services.shipping(self._database("shipping", process)))
                case "cart":
                    service.serve(*services.cart(self.carts))
                case "email":
                    service.serve(*services.email(self.spool))
                case _ if process.name == _READS:
                    service.serve(*services.reads())
                case _:
                    database, replica = self._database("checkout", process), CHECKOUTS.index(process.name)
                    service.is_later = process.name in self.later
                    await stack.enter_async_context(services.checkout_process(service, replica, database))
            await process.stopping.wait()

    def _database(self, name: str, process: Process) -> SimulatedDatabase:
        return SimulatedDatabase(self.disks[name], process, self.faults)

    def _find(self, address: str) -> Process | None:
        return self._processes.get(_READS if address in _READ_ADDRESSES else address)
