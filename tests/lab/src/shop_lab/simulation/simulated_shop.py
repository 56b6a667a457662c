"""The simulated shop: its disks, its processes and the faults that befall them."""

import random
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial

from payment_service.domain import LedgerUnavailable
from shipping_service.domain import ManifestUnavailable
from shop_lab.simulation import services
from shop_lab.simulation.chances import Chances
from shop_lab.simulation.clock import VirtualLoop
from shop_lab.simulation.journals import PostgresModel, PostgresServer, SqliteModel
from shop_lab.simulation.network import Network
from shop_lab.simulation.plan import (
    CHECKOUTS,
    DATABASES,
    PROCESSES,
    ClockJump,
    Dialect,
    LostCommits,
    Outage,
    Plan,
    ProcessFault,
    ProcessFaultKind,
)
from shop_lab.simulation.processes import Process
from shop_lab.world.retention import delete_released_orders

READS = "reads"
_READ_ADDRESSES = frozenset({"product-catalog", "currency"})
_RESTART_SECONDS = (0.05, 1.0)

_STRANDED = """
    SELECT 1 FROM orders WHERE state IN ('CHARGING', 'VOIDING') AND lease_until > clock_timestamp() + 3000
    UNION ALL SELECT 1 FROM outbox WHERE dead_at IS NULL AND due_at > clock_timestamp() + 3000
"""
"""Further ahead than any worker sets them, and less than a clock jumps."""


class SimulatedShop:
    """All services, their disks and their network, with the faults of a plan.

    Attributes:
        trace: everything that happened, in order.
        stranded: the number of leases and due times that a clock, set back, has left far in the future.
        deleted: how many orders retention has deleted.
    """

    def __init__(self, plan: Plan, loop: VirtualLoop, trace: list[str]) -> None:
        self.plan = plan
        self.trace = trace
        self.stranded = 0
        self._loop = loop
        self.chances = Chances(plan, loop.time)
        self._rng = random.Random(f"restarts {plan.seed}")  # noqa: S311 - a schedule, not a secret
        self._processes: dict[str, Process] = {}
        self.network = Network(self.chances, self._find, self.kill, self.record)
        self._ahead_seconds = dict.fromkeys(DATABASES, 0.0)
        self.journal, self.ledger, self.manifest = (
            services.open_disk(database, partial(self._wall_clock, database)) for database in DATABASES
        )
        self._postgres = PostgresServer(self.journal)
        self.carts = services.open_carts(loop.time)
        self.spool = services.MemorySpool()
        self.deleted = Counter[str]()

    def now(self) -> float:
        return self._loop.time()

    def _wall_clock(self, database: str) -> float:
        """Return the seconds since 1970 on the machine of a database, whose clock may have been set."""
        return self._loop.wall_clock() + self._ahead_seconds[database]

    def record(self, event: str) -> None:
        """Add an event to the trace."""
        self.trace.append(f"{self._loop.time():.6f} {event}")

    def start_all(self) -> None:
        """Start the processes and schedule the faults."""
        for name in (*PROCESSES, READS):
            self._start(name)
        for fault in self.plan.faults:
            self._loop.call_later(fault.at, self._begin, fault)

    def is_idle(self) -> bool:
        """Return whether every planned fault has begun, all processes serve, and no call is in progress."""
        faults_begun = all(fault.at <= self.now() for fault in self.plan.faults)
        return faults_begun and self.network.is_idle() and all(self._processes[name].serves() for name in PROCESSES)

    def end_faults(self) -> None:
        """End all faults: restart what is down, and resume what is paused."""
        self.record("calm")
        self.chances.calm = True
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

    def kill(self, process: Process) -> None:
        """Kill a process and restart it soon, unless the faults have ended: a call may have met its fate before."""
        if process.alive and not self.chances.calm:
            self._end(process)
            self._restart_after(self._rng.uniform(*_RESTART_SECONDS), process)

    def _end(self, process: Process) -> None:
        self.record(f"kill {process.name}")
        process.kill()
        self.network.connection_lost(process)

    def _begin(self, fault: object) -> None:
        match fault:
            case ProcessFault(kind=ProcessFaultKind.KILL) as kill:
                if self._processes[kill.process].alive:
                    self._end(self._processes[kill.process])
                    self._restart_after(kill.seconds, self._processes[kill.process])
            case ProcessFault(kind=ProcessFaultKind.PAUSE) as pause:
                self.record(f"pause {pause.process} for {pause.seconds:.3f}")
                process = self._processes[pause.process]
                process.pause()
                self._loop.call_later(pause.seconds, process.resume)
            case ProcessFault(kind=ProcessFaultKind.STOP) as stop:
                self.record(f"stop {stop.process}")
                process = self._processes[stop.process]
                process.stopping.set()
                self._restart_after(stop.seconds, process)
            case LostCommits() as lost:
                self._lose_commits(lost)
            case ClockJump() as jump:
                self._ahead_seconds[jump.database] += jump.seconds
                self.stranded += len(self.journal.query(_STRANDED))
                self.record(f"the clock of the database of {jump.database} jumps by {jump.seconds:.0f} s")
            case Outage() as outage:
                self.record(f"outage of the database of {outage.database}")
                self._postgres.abort_all()

    def _lose_commits(self, lost: LostCommits) -> None:
        if lost.restart:
            for name in CHECKOUTS:
                if self._processes[name].alive:
                    self.kill(self._processes[name])
        self._postgres.abort_all()
        count = self.journal.lose_suffix(lost.count)
        self.record(f"{count} commits of the journal are lost")

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
                ledger = SqliteModel(self.ledger, process, self.chances, "payment", LedgerUnavailable)
                services.register_payment(service, ledger)
            case "shipping":
                manifest = SqliteModel(self.manifest, process, self.chances, "shipping", ManifestUnavailable)
                services.register_shipping(service, manifest)
            case "cart":
                services.register_cart(service, self.carts)
            case "email":
                services.register_email(service, self.spool)
            case _ if process.name == READS:
                services.register_reads(service)
            case _:
                database = (
                    PostgresModel(self._postgres, process, self.chances)
                    if self.plan.dialect is Dialect.POSTGRES
                    else SqliteModel(self.journal, process, self.chances)
                )
                settings = services.checkout_settings(CHECKOUTS.index(process.name))
                async with services.checkout_process(service, settings, database):
                    if self.plan.retention:
                        process.spawn(delete_released_orders(database, self.deleted), "retention")
                    yield
                return
        yield

    def _find(self, address: str) -> Process | None:
        return self._processes.get(READS if address in _READ_ADDRESSES else address)
