"""The control room's state and actions, independent of HTTP."""

import asyncio
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol

from chassis.background import finish
from chassis.errors import NotFound
from shop_cli.control_room.customers import Customers
from shop_cli.control_room.fault_demo import FaultDemo
from shop_cli.control_room.reconciliation import Reconciler
from shop_cli.local.child_process import ChildProcess
from shop_cli.local.processes import Shop
from shop_cli.local.run_file import DATA, Run
from shop_cli.local.telemetry_store import TelemetryStore


class Section(Protocol):
    """Part of a page, with forms that the user can submit.

    Attributes:
        page: the path of the page that shows the section: `/`, or the section's own page, such as `/faults`.
        template: the section's Jinja template, which accesses the section by its name.
    """

    page: str
    template: str

    async def act(self, form: Mapping[str, str]) -> None:
        """Handle a form that the user submitted. Raise a DomainError to refuse the form."""


@dataclass
class ControlRoom:
    """A running shop, with everything needed to observe and disrupt it.

    Attributes:
        sections: the sections shown on pages, by name. Plugins add their own.
        stores: the shop's own database servers, which can be observed and disrupted like the services.
        telemetry_elsewhere: the OTLP endpoint to which the services export; None if they export to this process.
    """

    run: Run
    shop: Shop
    stores: Sequence[ChildProcess]
    telemetry: TelemetryStore
    reconciler: Reconciler
    telemetry_elsewhere: str | None = None

    def __post_init__(self) -> None:
        self.customers = Customers(self.run.url("storefront"), Path(self.run.folder) / DATA / "log" / "customers.log")
        self.sections: dict[str, Section] = {"fault_demo": FaultDemo(self), "customers": self.customers}
        self._tasks: set[asyncio.Task[object]] = set()

    @property
    def processes(self) -> list[ChildProcess]:
        return [*self.shop, *self.stores]

    def process(self, name: str) -> ChildProcess:
        """Return the service or store with this name. Raise UnknownService if there is none."""
        return next((store for store in self.stores if store.name == name), None) or self.shop[name]

    def act(self, action: str, name: str) -> None:
        """Kill, freeze, resume or restart a service or store. Raise NotFound if the action or name is unknown."""
        process = self.process(name)
        actions: dict[str, Callable[[], None]] = {
            "kill": process.kill,
            "freeze": process.pause,
            "resume": process.resume,
            "restart": lambda: self.start(process.stop()),  # the supervisor then starts the process again
        }
        if action not in actions:
            message = f"unknown action {action!r}: expected one of {', '.join(actions)}"
            raise NotFound(message, reason="UNKNOWN_ACTION")
        actions[action]()

    def services(self) -> list[dict[str, Any]]:
        now = time.time()
        return [
            {
                "name": process.name,
                "address": process.address,
                "state": process.state,
                "restarts": max(0, process.starts - 1),
                **asdict(self.telemetry.calls.of_service(process.name, now)),
            }
            for process in self.processes
        ]

    async def close(self) -> None:
        await finish(self._tasks, within_seconds=0)
        await self.customers.stop()

    def start(self, work: Coroutine[Any, Any, object]) -> None:
        """Run a coroutine in the background."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
