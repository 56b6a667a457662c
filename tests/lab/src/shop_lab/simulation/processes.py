"""Simulated processes: they die, pause and restart; what a dead one still does has no effect."""

import asyncio
from collections.abc import Coroutine
from contextvars import Context, ContextVar
from typing import Any

from shop_lab.simulation.generated import Handler

_MAX_FINISHED = 64

_current: ContextVar["Process | None"] = ContextVar("process", default=None)


class Process:
    """One incarnation of a process. Its tasks are those that its own tasks create.

    Attributes:
        handlers: what it serves, by path.
        stopping: set when the process is to end in good order.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.alive = True
        self.handlers: dict[str, Handler] = {}
        self.stopping = asyncio.Event()
        self._resumed = asyncio.Event()
        self._resumed.set()
        self._tasks: list[asyncio.Task[Any]] = []
        self.context = Context()  # a restart must not inherit the context of the call during which the process died
        self.context.run(_current.set, self)

    def spawn(self, work: Coroutine[Any, Any, Any], name: str) -> asyncio.Task[Any]:
        """Run a coroutine as a task of this process, in a context of its own."""
        loop = asyncio.get_running_loop()
        return self.context.run(loop.create_task, work, name=name, context=self.context.copy())

    def adopt(self, task: asyncio.Task[Any]) -> None:
        """Count a task among those of this process."""
        if not self.alive:
            task.cancel()
            return
        if len(self._tasks) > _MAX_FINISHED:
            self._tasks = [each for each in self._tasks if not each.done()]
        self._tasks.append(task)

    def kill(self) -> None:
        """End the process as SIGKILL does: nothing that it does from now on reaches another process or a disk."""
        self.alive = False
        self.resume()
        for task in self._tasks:
            task.cancel()
        self._tasks.clear()

    def serves(self) -> bool:
        """Return whether the process is neither dead nor paused nor about to end."""
        return self.alive and self._resumed.is_set() and not self.stopping.is_set()

    def pause(self) -> None:
        """Suspend the process as SIGSTOP does: its calls and writes wait, while its timers run on."""
        self._resumed.clear()

    def resume(self) -> None:
        """Continue after `pause`."""
        self._resumed.set()

    async def running(self) -> None:
        """Wait while the process is paused. Raise CancelledError in a dead one."""
        while not self._resumed.is_set():
            await self._resumed.wait()
        if not self.alive:
            raise asyncio.CancelledError


def current_process() -> Process | None:
    """Return the process that runs the current task; None in a customer's."""
    return _current.get()


def create_task(loop: asyncio.AbstractEventLoop, work: Any, **options: Any) -> asyncio.Task[Any]:
    """Create a task: a factory for `loop.set_task_factory`."""
    task = asyncio.Task(work, loop=loop, **options)
    process = _current.get()
    if process is not None:
        process.adopt(task)
    return task
