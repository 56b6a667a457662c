"""Records what happens to the orders of a run: commits of all databases, and the commands of all sagas."""

from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeAlias
from unittest import mock

from checkout_service.commands import Command
from checkout_service.domain import Card
from checkout_service.executor import Executor, Run
from checkout_service.ports import Entry
from checkout_service.saga import Saga, SagaResult
from shop_lab.simulation.disk import Change, Disk


@dataclass(frozen=True, slots=True)
class Committed:
    """Rows of a database changed."""

    changes: tuple[Change, ...]


@dataclass(frozen=True, slots=True)
class Lost:
    """The journal has lost all but its first `remaining` commits."""

    remaining: int


@dataclass(frozen=True, slots=True)
class Began:
    """A worker began to work on an order."""

    worker: int
    entry: Entry
    has_card: bool


@dataclass(frozen=True, slots=True)
class Issued:
    """A saga yielded a command."""

    worker: int
    command: Command[Any]


@dataclass(frozen=True, slots=True)
class Returned:
    """The command's result was sent to the saga."""

    worker: int
    result: Any


@dataclass(frozen=True, slots=True)
class Ended:
    """A worker ended: its saga did, or its process died."""

    worker: int


Event: TypeAlias = Committed | Lost | Began | Issued | Returned | Ended


class Recorder:
    """The events of one run, in order."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self._workers = 0

    def attach(self, journal: Disk, *others: Disk) -> None:
        """Record the commits of these databases."""
        journal.on_loss = lambda: self.events.append(Lost(len(journal.commits)))
        for disk in (journal, *others):
            disk.on_commit = lambda changes: self.events.append(Committed(changes))

    @contextmanager
    def recording(self) -> Iterator[None]:
        """Record all sagas that begin within the context."""
        start = Executor.start

        def recorded(executor: Executor, entry: Entry, steps: Saga, card: Card | None = None, **options: Any) -> Run:
            self._workers += 1
            worker = self._workers
            self.events.append(Began(worker, entry, card is not None))
            run = start(executor, entry, self._followed(worker, steps), card, **options)
            run.task.add_done_callback(lambda _: self.events.append(Ended(worker)))
            return run

        with mock.patch.object(Executor, "start", recorded):
            yield

    def _followed(self, worker: int, steps: Saga) -> Generator[Command[Any], Any, SagaResult]:
        result: Any = None
        while True:
            try:
                command = steps.send(result)
            except StopIteration as stop:
                ended: SagaResult = stop.value
                return ended
            self.events.append(Issued(worker, command))
            result = yield command
            self.events.append(Returned(worker, result))
