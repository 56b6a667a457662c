"""What the control room shows and does, without HTTP."""

import asyncio
import time
from dataclasses import asdict, dataclass, field
from typing import Any

from chassis.errors import FailedPrecondition, NotFound
from shop_cli.control_room.customers import Customers
from shop_cli.control_room.proof import Prover
from shop_cli.control_room.story import Story
from shop_cli.local.processes import Process, Shop
from shop_cli.local.states import Monitor
from shop_cli.local.telemetry_store import TelemetryStore

ACTIONS = ("kill", "freeze", "resume", "restart")


class UnknownAction(NotFound):
    """No action on a service has this name."""


class StoryRunning(FailedPrecondition):
    """The story runs already."""


@dataclass
class Room:
    """A running shop, and the means to observe and disturb it.

    Attributes:
        storefront: its URL, None if the shop has none.
        telemetry_elsewhere: the OTLP endpoint to which the services export instead of this process, if there is one.
        closing: set when the shop stops.
    """

    shop: Shop
    monitor: Monitor
    telemetry: TelemetryStore
    prover: Prover
    customers: Customers
    storefront: str | None = None
    telemetry_elsewhere: str | None = None
    story: Story | None = None
    closing: asyncio.Event = field(default_factory=asyncio.Event)
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)

    def act(self, action: str, name: str) -> None:
        """Kill, freeze, resume or restart a service. Raise UnknownService or UnknownAction."""
        process = self.shop[name]
        if action not in ACTIONS:
            raise UnknownAction(f"unknown action {action!r}: expected one of {', '.join(ACTIONS)}")
        if action == "restart":
            self._run(process.stop())  # supervision starts it again
        else:
            {"kill": process.kill, "freeze": process.pause, "resume": process.resume}[action]()
        self.monitor.check_now(name)

    def start_story(self) -> None:
        """Begin the story of an order that survives a frozen payment. Raise StoryRunning."""
        if self.story is not None and self.story.running:
            raise StoryRunning("the story is not over yet")
        self.story = Story(self.shop, self.prover, self.monitor.check_now)
        self._run(self.story.run())

    def services(self) -> list[dict[str, Any]]:
        """Describe all services."""
        now = time.time()
        return [self._service(process, now) for process in self.shop]

    async def close(self) -> None:
        """Stop what runs in the background."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.customers.stop()

    def _service(self, process: Process, now: float) -> dict[str, Any]:
        return {
            "name": process.name,
            "address": process.address,
            "protocol": process.program.protocol,
            "state": self.monitor.states[process.name],
            "restarts": max(0, process.starts - 1),
            **asdict(self.telemetry.figures(process.name, now)),
        }

    def _run(self, work: Any) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
