import random
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import gevent
import structlog
from gevent.event import AsyncResult
from gevent.pool import Group
from locust import User, task
from locust.env import Environment

from load_generator.figures import Figures
from load_generator.personas import PERSONAS, Persona
from load_generator.session import PATIENCE_SECONDS, Session, SessionEnded

_log = structlog.get_logger()

_POLL_SECONDS = 0.1


@dataclass
class Customers:
    """Opens sessions at the planned times, however slow the shop is (open loop). `max_sessions` limits memory use."""

    environment: Environment
    figures: Figures
    seed: str
    think_seconds: float
    max_sessions: int

    def __post_init__(self) -> None:
        self._sessions = Group()
        gevent.get_hub().NOT_ERROR += (SessionEnded,)  # otherwise, gevent prints the traceback of a failed click
        self._workers: dict[str, dict[str, Any]] = {}
        self._start()
        # Read `host` only once, because requests to Locust's web UI can change it.
        self._origin = (self.environment.host or "").rstrip("/")
        events = self.environment.events
        events.test_start.add_listener(lambda **_: self._start())  # type: ignore[no-untyped-call]
        events.test_stop.add_listener(lambda **_: self._stop())  # type: ignore[no-untyped-call]
        events.report_to_master.add_listener(self._report)  # type: ignore[no-untyped-call]
        events.worker_report.add_listener(self._read_report)  # type: ignore[no-untyped-call]

    @property
    def in_flight(self) -> int:
        return len(self._sessions) + sum(int(report["in_flight"]) for report in self._workers.values())

    def wait_for_workers(self) -> None:
        """Wait until all workers have reported that their sessions are over, but for at most a minute."""
        deadline = time.monotonic() + 2 * PATIENCE_SECONDS
        while any(report["in_flight"] or not report["ended"] for report in self._workers.values()):
            if time.monotonic() > deadline:
                _log.warning("a worker did not report in time")
                return
            gevent.sleep(_POLL_SECONDS)

    def arrive(self, plan: "partial[Iterator[float]]") -> None:
        """Open sessions as planned, until the greenlet is killed."""
        self._sources += 1
        source = f"{self.seed} {getattr(self.environment.runner, 'worker_index', 0)} {self._sources}"
        generator = random.Random(source)  # noqa: S311 - not used for secrets
        for number, seconds in enumerate(plan(generator, begin=time.monotonic() - self._began)):
            arrival = self._began + seconds
            gevent.sleep(max(0.0, arrival - time.monotonic()))
            self._open(arrival, random.Random(f"{source} {number}"))  # noqa: S311 - not used for secrets

    def _open(self, arrival: float, generator: random.Random) -> None:
        if len(self._sessions) >= self.max_sessions:
            self.figures.record_dropped_session()
            return
        (persona,) = generator.choices(list(PERSONAS), list(PERSONAS.values()))
        self.figures.record_session(persona.__name__.replace("_", " "))
        self._sessions.spawn(self._run, persona, arrival, generator)

    def _run(self, persona: Persona, arrival: float, generator: random.Random) -> None:
        session = Session(
            self.environment, self.figures, self._origin, arrival, self.think_seconds, generator, self._end
        )
        try:
            persona(session)
        except SessionEnded as ended:
            _log.debug("session ended early", persona=persona.__name__, reason=str(ended))
        finally:
            session.close()

    def _start(self) -> None:
        self._end: AsyncResult[float] = AsyncResult()
        self._began = time.monotonic()
        self._sources = 0
        self.figures.start()

    def _stop(self) -> None:
        """End the run. Let sessions send only requests that are already due, and wait for the responses."""
        self._end.set(time.monotonic())
        self._sessions.join(timeout=2 * PATIENCE_SECONDS)
        self._sessions.kill()

    def _report(self, client_id: str, data: dict[str, Any]) -> None:
        data["in_flight"] = len(self._sessions)
        data["ended"] = self._end.ready()

    def _read_report(self, client_id: str, data: dict[str, Any]) -> None:
        self._workers[client_id] = data


def source_of(customers: Customers, plan: "partial[Iterator[float]]") -> type[User]:
    class Source(User):
        @task
        def arrive(self) -> None:
            customers.arrive(plan)

    return Source
