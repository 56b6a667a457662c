"""Workers that claim items from a queue in the journal, with their poll timer, circuit breakers and back-off."""

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

# How long workers wait, at most a fifth longer, before they look for new work, unless they have found enough.
POLL_SECONDS = 1.0

# How many items of a queue are worked on at a time.
CONCURRENCY = 16

_WORK_WITHIN_SECONDS = 60.0  # calls have deadlines, so only a defect takes longer
_FAILURES_TO_OPEN = 5
_FIRST_RETRY_SECONDS = 2.0
_FIRST_PAUSE_SECONDS = 1.0
_LONGEST_PAUSE_SECONDS = 60.0


def retry_delay_seconds(failures: int) -> float:
    """Return the delay before the next try: 2 s after the first failure, doubled by each more, 5 minutes at most."""
    return backoff_seconds(failures, _FIRST_RETRY_SECONDS, MAX_RETRY_DELAY_SECONDS)


class CircuitBreaker:
    """Limits work that fails every time, such as calls of a peer that is down, to one probe at growing intervals.

    Five failures in a row open the circuit, and one success closes it, and the one `of_failed`: if a first attempt
    succeeds, the peer works, so that other items are worth a try.
    """

    def __init__(self, name: str, of_failed: "CircuitBreaker | None" = None) -> None:
        self._name = name
        self._of_failed = of_failed
        self._failures = 0
        self._admitted = 0
        self._probe_at = 0.0

    @property
    def open(self) -> bool:
        """Only probes are admitted."""
        return self._failures >= _FAILURES_TO_OPEN

    def admit(self, wanted: int) -> int:
        """Return how many units of work may begin, `wanted` at most. Each of them is to be released."""
        granted = wanted
        if self.open:
            granted = min(wanted, 1) if not self._admitted and self._now() >= self._probe_at else 0
        self._admitted += granted
        return granted

    def release(self, count: int) -> None:
        self._admitted -= count

    def record_success(self) -> None:
        """Close the circuit."""
        if self.open:
            log.info("circuit closed", circuit=self._name)
        self._failures = 0
        if self._of_failed is not None:
            self._of_failed.record_success()

    def record_failure(self) -> None:
        """Open the circuit after several failures, or delay the next probe."""
        was_open = self.open
        # Work that began before the circuit opened is no probe.
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
    """Return the circuit breakers of one kind of work: of first attempts, and (True) of items that have failed before.

    They are apart, because an item that always fails must not delay new ones.
    """
    failed = CircuitBreaker(f"{name}, failed before")
    return {False: CircuitBreaker(name, failed), True: failed}


class PollTimer:
    """Wakes all workers of a replica at the same moment, so that they share one read of what is due."""

    def __init__(self) -> None:
        self._next = asyncio.Event()
        self._next.set()

    async def wait(self) -> None:
        """Wait until it is time to look for work again."""
        if self._next.is_set():
            self._next = asyncio.Event()
            # Replicas that started together must not claim at the same moment for ever.
            seconds = POLL_SECONDS * random.uniform(0.8, 1.2)  # noqa: S311 - not a secret
            asyncio.get_running_loop().call_later(seconds, self._next.set)
        await self._next.wait()


@dataclass(eq=False)
class QueueWorker(Generic[ItemT]):
    """Claims a queue's items and works on them, CONCURRENCY at a time, without a pause while there are more.

    Attributes:
        poll_timer: that of the replica.
        claim: returns the items that are due, up to a limit. May raise JournalUnavailable.
        work: returns whether the item's peer works; None, if the item says nothing about that.
    """

    poll_timer: PollTimer
    circuit: CircuitBreaker
    claim: Callable[[int], Awaitable[Sequence[ItemT]]]
    work: Callable[[ItemT], Awaitable[bool | None]]
    _in_progress: int = field(default=0, init=False)
    _has_room: asyncio.Event = field(default_factory=asyncio.Event, init=False)

    async def run(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            while True:
                if await self._start_claimed(tasks):
                    # Claiming several items at once is cheaper than claiming each as another one finishes.
                    await self._has_room.wait()
                else:
                    await self.poll_timer.wait()

    async def _start_claimed(self, tasks: asyncio.TaskGroup) -> bool:
        """Begin to work on as many items as there is room for. Return whether there may be more."""
        room = CONCURRENCY - self._in_progress
        limit = self.circuit.admit(room)
        items: Sequence[ItemT] = ()
        try:
            if limit:
                items = await self.claim(limit)
        except JournalUnavailable:
            log.warning("work cannot be claimed")
        except Exception:
            log.exception("work cannot be claimed")
        finally:
            self.circuit.release(limit - len(items))
        self._in_progress += len(items)
        self._update_room()
        for item in items:
            tasks.create_task(self._perform(item))
        return len(items) == limit and (limit > 0 or room == 0)

    async def _perform(self, item: ItemT) -> None:
        try:
            # Otherwise work that hangs would occupy its slot, and in the end all of them, until a restart.
            async with asyncio.timeout(_WORK_WITHIN_SECONDS):
                worked = await self.work(item)
            if worked:
                self.circuit.record_success()
            elif worked is False:
                self.circuit.record_failure()
        except JournalUnavailable:
            log.warning("the result of background work is not recorded")
        except Exception:  # a defect in one item must not end the process
            log.exception("background work failed")
            self.circuit.record_failure()
        finally:
            self.circuit.release(1)
            self._in_progress -= 1
            self._update_room()

    def _update_room(self) -> None:
        if self._in_progress <= CONCURRENCY // 2:
            self._has_room.set()
        else:
            self._has_room.clear()


def workers(
    poll_timer: PollTimer,
    circuits: Mapping[Any, Mapping[bool, CircuitBreaker]],
    claim: Callable[..., Awaitable[Sequence[ItemT]]],
    work: Callable[[ItemT], Awaitable[bool | None]],
) -> list[QueueWorker[ItemT]]:
    """Return two workers for each queue that has circuits: for its new items, and for those that failed before."""
    return [
        QueueWorker(poll_timer, circuit, partial(claim, queue, failed=failed), work)
        for queue, by_failed in circuits.items()
        for failed, circuit in by_failed.items()
    ]
