"""Shows and disturbs the running shop, without HTTP."""

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Protocol

from chassis.errors import FailedPrecondition, NotFound
from shop_cli.control_room.customers import Customers
from shop_cli.control_room.fault_demo import FaultDemo
from shop_cli.control_room.reconciliation import Reconciler
from shop_cli.local.child_process import ChildProcess
from shop_cli.local.processes import Shop
from shop_cli.local.supervision import Monitor
from shop_cli.local.telemetry_store import TelemetryStore


class UnknownAction(NotFound):
    """No action on a service has this name."""


class FaultDemoRunning(FailedPrecondition):
    """The demonstration of faults runs already."""


class Panel(Protocol):
    """A section of the page; `template` is Jinja's and has it as `panel`."""

    template: str

    async def act(self, form: Mapping[str, str]) -> None:
        """Act on a form of the section. Raise a DomainError."""


@dataclass
class ControlRoom:
    """A running shop, and the means to observe and disturb it.

    Attributes:
        stores: the shop's own database servers, which are observed and disturbed like its services.
        url: the link to the control room, with its token.
        storefront, employee_api: their URLs, None if the shop has none.
        panel: what a laboratory adds to the page.
        telemetry_elsewhere: the OTLP endpoint to which the services export instead of this process, if there is one.
    """

    shop: Shop
    monitor: Monitor
    telemetry: TelemetryStore
    reconciler: Reconciler
    customers: Customers
    stores: Sequence[ChildProcess] = ()
    url: str = field(default="", repr=False)
    storefront: str | None = None
    employee_api: str | None = None
    telemetry_elsewhere: str | None = None
    fault_demo: FaultDemo | None = None
    panel: Panel | None = None
    closing: asyncio.Event = field(default_factory=asyncio.Event)
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)

    @property
    def processes(self) -> list[ChildProcess]:
        """The services and the stores."""
        return [*self.shop, *self.stores]

    def process(self, name: str) -> ChildProcess:
        """Return a service or store. Raise UnknownService."""
        return next((store for store in self.stores if store.name == name), None) or self.shop[name]

    def act(self, action: str, name: str) -> None:
        """Kill, freeze, resume or restart a service or store. Raise UnknownService or UnknownAction."""
        process = self.process(name)
        actions: dict[str, Callable[[], None]] = {
            "kill": process.kill,
            "freeze": process.pause,
            "resume": process.resume,
            "restart": lambda: self._run(process.stop()),  # supervision starts it again
        }
        if action not in actions:
            raise UnknownAction(f"unknown action {action!r}: expected one of {', '.join(actions)}")
        actions[action]()
        self.monitor.check_now(name)

    def start_fault_demo(self) -> None:
        """Start the demonstration of an order that survives faults. Raise FaultDemoRunning."""
        if self.fault_demo is not None and self.fault_demo.running:
            raise FaultDemoRunning("the demonstration has not ended yet")
        self.fault_demo = FaultDemo(self.shop, self.reconciler, self.act)
        self._run(self.fault_demo.run())

    def services(self) -> list[dict[str, Any]]:
        now = time.time()
        return [
            {
                "name": process.name,
                "address": process.address,
                "state": self.monitor.states[process.name],
                "restarts": max(0, process.starts - 1),
                **asdict(self.telemetry.calls.of_service(process.name, now)),
            }
            for process in self.processes
        ]

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.customers.stop()

    def _run(self, work: Any) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
