"""The simulated shop: its disks, its processes and the faults that befall them."""

from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from enum import StrEnum
from functools import partial

from chassis import errors
from payment_service.domain import LedgerUnavailable
from shipping_service.domain import ManifestUnavailable
from shop_lab.simulation import services
from shop_lab.simulation.clock import VirtualLoop
from shop_lab.simulation.faults import Faults
from shop_lab.simulation.journals import PostgresModel, PostgresServer, SqliteModel
from shop_lab.simulation.network import Network
from shop_lab.simulation.processes import Process
from shop_lab.world.retention import delete_released_orders

CHECKOUTS = ("checkout-1", "checkout-2")
PROCESSES = (*CHECKOUTS, "payment", "shipping", "cart", "email")
DATABASES = ("checkout", "payment", "shipping")
_READS = "reads"
_READ_ADDRESSES = frozenset({"product-catalog", "currency"})


class Dialect(StrEnum):
    """The database of checkout's journal."""

    SQLITE = "sqlite"
    POSTGRES = "postgres"


class SimulatedShop:
    """All services, their disks and their network.

    Args:
        trace: receives everything that happens, in order.
        retention: orders are deleted seconds after they were refused or abandoned.

    Attributes:
        loses_commits: whether the journal has lost any.
        refuses: whether a peer has refused anything.
    """

    def __init__(
        self, loop: VirtualLoop, faults: Faults, trace: list[str], dialect: Dialect, *, retention: bool = False
    ) -> None:
        self.faults = faults
        self.loses_commits = self.refuses = False
        self._loop = loop
        self._trace = trace
        self._dialect = dialect
        self._retention = retention
        self._processes: dict[str, Process] = {}
        self.network = Network(faults, self._find, self._kill_by_fate, self.record)
        self._ahead_seconds = dict.fromkeys(DATABASES, 0.0)
        self.journal, self.ledger, self.manifest = (
            services.open_disk(database, partial(self._wall_clock, database)) for database in DATABASES
        )
        self._postgres = PostgresServer(self.journal)
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

    def _wall_clock(self, database: str) -> float:
        """Return the seconds since 1970 on the machine of a database, whose clock may have been set."""
        return self._loop.wall_clock() + self._ahead_seconds[database]

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
        for name in PROCESSES:
            self._processes[name].resume()
            if not self._processes[name].serves():
                self._start(name)

    def stop_all(self) -> None:
        """Kill all processes and close the disks."""
        for process in self._processes.values():
            process.kill()
        self.journal.close()
        self.ledger.close()
        self.manifest.close()

    def kill(self, process: str, seconds: float) -> None:
        """Kill a process, and start it again after so many seconds."""
        killed = self._processes[process]
        if killed.alive:
            self.record(f"kill {process}")
            killed.kill()
            self.network.connection_lost(killed)
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

    def refuse(self, path: str, kind: str, seconds: float) -> None:
        """Let a peer refuse all calls of a method with a kind of error, whatever it did before."""
        self.record(f"{path} is refused: {kind}")
        self.refuses = True
        error: type[errors.DomainError] = getattr(errors, kind)
        is_field = error is errors.InvalidArgument
        refusal = errors.InvalidArgument.field("address", "is refused") if is_field else error("refused")
        self.faults.refusals[path] = refusal
        self._loop.call_later(seconds, self.faults.refusals.pop, path, None)

    def slow_down(self, path: str, seconds: float) -> None:
        """Let all calls of a method take up to so many seconds longer, each a time of its own."""
        self.record(f"{path} slows down")
        self.faults.delays[path] = seconds

    def stop_database(self, database: str, seconds: float) -> None:
        """Let a database refuse connections."""
        self.record(f"outage of the database of {database}")
        self.faults.down.add(database)
        self._loop.call_later(seconds, self.faults.down.discard, database)
        if database == "checkout":
            self._postgres.abort_all()

    def set_clock(self, database: str, hours: int) -> None:
        """Set the wall clock of a database's machine forward, or back by negative hours."""
        self.record(f"the clock of the database of {database} jumps by {hours} h")
        self._ahead_seconds[database] += hours * 3_600

    def lose_commits(self, count: int, restart: bool) -> None:
        """Let the journal lose its last commits: with a restart of checkout (a back-up), or without (a failover)."""
        for name in CHECKOUTS if restart else ():
            self.kill(name, 0.5)
        self._postgres.abort_all()
        self.loses_commits = True
        self.record(f"{self.journal.lose_suffix(count)} commits of the journal are lost")

    def _restart_after(self, seconds: float, process: Process) -> None:
        def restart() -> None:
            if self._processes[process.name] is process:
                self._start(process.name)

        self._loop.call_later(seconds, restart)

    def _start(self, name: str) -> None:
        previous = self._processes.get(name)
        if previous is not None and previous.alive:
            previous.kill()
            self.network.connection_lost(previous)
        self.record(f"start {name}")
        process = self._processes[name] = Process(name)
        process.spawn(self._main(process), name)

    async def _main(self, process: Process) -> None:
        async with self._built(process):
            await process.stopping.wait()

    @asynccontextmanager
    async def _built(self, process: Process) -> AsyncIterator[None]:
        service = services.SimulatedService(self.network, process)
        match process.name:
            case "payment":
                ledger = SqliteModel(self.ledger, process, self.faults, "payment", LedgerUnavailable)
                services.register_payment(service, ledger)
            case "shipping":
                manifest = SqliteModel(self.manifest, process, self.faults, "shipping", ManifestUnavailable)
                services.register_shipping(service, manifest)
            case "cart":
                services.register_cart(service, self.carts)
            case "email":
                services.register_email(service, self.spool)
            case _ if process.name == _READS:
                services.register_reads(service)
            case _:
                database = (
                    PostgresModel(self._postgres, process, self.faults)
                    if self._dialect is Dialect.POSTGRES
                    else SqliteModel(self.journal, process, self.faults)
                )
                settings = services.checkout_settings(CHECKOUTS.index(process.name))
                async with services.checkout_process(service, settings, database):
                    if self._retention:
                        process.spawn(delete_released_orders(database, Counter()), "retention")
                    yield
                return
        yield

    def _find(self, address: str) -> Process | None:
        return self._processes.get(_READS if address in _READ_ADDRESSES else address)
