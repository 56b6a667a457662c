"""Workers that process the journal's queues, with their poll timer, circuit breakers and backoff."""

import asyncio
import random
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Generic, TypeVar

import structlog

from chassis.values.backoff import backoff_seconds
from checkout_service.ports import MAX_RETRY_DELAY_SECONDS, JournalUnavailable

ItemT = TypeVar("ItemT")

log = structlog.get_logger()

# How often idle workers look for new work, plus or minus 20 %.
POLL_SECONDS = 1.0

# How many items a worker works on at a time.
CONCURRENCY = 16

_WORK_WITHIN_SECONDS = 60.0  # calls to peers have deadlines, so only a bug can take longer
_FAILURES_TO_OPEN = 5
_FIRST_PAUSE_SECONDS = 1.0
_LONGEST_PAUSE_SECONDS = 60.0


# The delay before the next try after this many failures: 2 s, doubling up to 5 minutes.
retry_delay_seconds = partial(backoff_seconds, first_seconds=2.0, longest_seconds=MAX_RETRY_DELAY_SECONDS)


class CircuitBreaker:
    """Limits work that keeps failing, for example because a peer is down, to single probes at increasing intervals.

    Five consecutive failures open the circuit; one success closes it. A success also closes `of_failed`, the circuit
    for items that have failed before: the peer is up again, so these items are worth another try.
    """

    def __init__(self, name: str, of_failed: "CircuitBreaker | None" = None) -> None:
        self._name = name
        self._of_failed = of_failed
        self._failures = 0
        self._probe_at = 0.0

    @property
    def open(self) -> bool:
        return self._failures >= _FAILURES_TO_OPEN

    def admit(self, wanted: int, in_progress: int) -> int:
        """Return how many of the `wanted` items may start now, given how many are `in_progress`."""
        if not self.open:
            return wanted
        return 0 if in_progress or self._now() < self._probe_at else min(wanted, 1)

    def record_success(self) -> None:
        if self.open:
            log.info("circuit closed", circuit=self._name)
        self._failures = 0
        if self._of_failed is not None:
            self._of_failed.record_success()

    def record_failure(self) -> None:
        """Count a failure. The fifth in a row opens the circuit, and each failed probe then delays the next probe."""
        was_open = self.open
        # Don't count work that began before the circuit opened, because it was not a probe.
        if was_open and self._now() < self._probe_at:
            return
        self._failures += 1
        if self.open:
            probes = self._failures - _FAILURES_TO_OPEN + 1
            self._probe_at = self._now() + backoff_seconds(probes, _FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS)
            if not was_open:
                log.warning("circuit opened", circuit=self._name)

    @staticmethod
    def _now() -> float:
        return asyncio.get_running_loop().time()


def circuits_of(name: str) -> dict[bool, CircuitBreaker]:
    """Return two circuit breakers: under the key True for items that have failed before, under False for new items.

    Items that always fail must not delay new items, so each group has its own circuit.
    """
    failed = CircuitBreaker(f"{name}, failed before")
    return {False: CircuitBreaker(name, failed), True: failed}


class PollTimer:
    """Wakes all workers of a replica at the same moment, so that one query can find the due work for all of them."""

    def __init__(self) -> None:
        self._next = asyncio.Event()
        self._next.set()

    async def wait(self) -> None:
        if self._next.is_set():
            self._next = asyncio.Event()
            # Randomize the pause, so that replicas that started together do not keep claiming at the same moment.
            seconds = POLL_SECONDS * random.uniform(0.8, 1.2)  # noqa: S311 - the pause is not a secret
            asyncio.get_running_loop().call_later(seconds, self._next.set)
        await self._next.wait()


@dataclass(eq=False)
class QueueWorker(Generic[ItemT]):
    """Claims a queue's items and works on up to CONCURRENCY at a time, pausing only when no more items are due.

    `claim` returns due items, up to a limit, or raises JournalUnavailable. `work` handles one item, given the queue's
    circuit, and returns whether the item's peer is up, or None if that is unknown.
    """

    poll_timer: PollTimer
    circuit: CircuitBreaker
    claim: Callable[[int], Awaitable[Sequence[ItemT]]]
    work: Callable[[ItemT, CircuitBreaker], Awaitable[bool | None]]
    _running: set[asyncio.Task[None]] = field(default_factory=set, init=False)

    async def run(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            while True:
                if not await self._start_claimed(tasks):
                    await self.poll_timer.wait()
                    continue
                # Wait until there is room for several items: claiming many at once is cheaper than one at a time.
                while len(self._running) > CONCURRENCY // 2:
                    _, self._running = await asyncio.wait(self._running, return_when=asyncio.FIRST_COMPLETED)

    async def _start_claimed(self, tasks: asyncio.TaskGroup) -> bool:
        """Start as many due items as there is room for. Return whether more items may be due."""
        self._running = {task for task in self._running if not task.done()}
        room = CONCURRENCY - len(self._running)
        limit = self.circuit.admit(room, len(self._running))
        items: Sequence[ItemT] = ()
        try:
            if limit:
                items = await self.claim(limit)
        except JournalUnavailable:
            log.warning("work cannot be claimed")
        except Exception:
            log.exception("work cannot be claimed")
        self._running |= {tasks.create_task(self._perform(item)) for item in items}
        return len(items) == limit and (limit > 0 or room == 0)

    async def _perform(self, item: ItemT) -> None:
        try:
            # Without a timeout, items that hang would eventually occupy all slots.
            async with asyncio.timeout(_WORK_WITHIN_SECONDS):
                worked = await self.work(item, self.circuit)
            if worked:
                self.circuit.record_success()
            elif worked is False:
                self.circuit.record_failure()
        except JournalUnavailable:
            log.warning("the result of background work is not recorded")
        except Exception:  # a bug that one item triggers must not stop the worker
            log.exception("background work failed")
            self.circuit.record_failure()


async def run_workers(
    poll_timer: PollTimer,
    circuits: Mapping[Any, Mapping[bool, CircuitBreaker]],
    claim: Callable[..., Awaitable[Sequence[ItemT]]],
    work: Callable[[ItemT, CircuitBreaker], Awaitable[bool | None]],
) -> None:
    """Run two workers for each queue: one for new items and one for items that have failed before."""
    async with asyncio.TaskGroup() as tasks:
        for queue, by_failed in circuits.items():
            for failed, circuit in by_failed.items():
                worker = QueueWorker(poll_timer, circuit, partial(claim, queue, failed=failed), work)
                tasks.create_task(worker.run())
