"""Entry point: simulate customers of the storefront until the time limit or a signal."""

import json
import math
import secrets
import signal
import socket
import sys
import time
from collections.abc import Callable
from dataclasses import field
from functools import partial
from typing import Annotated, Any, Literal

import gevent
from gevent.event import Event
from locust.env import Environment
from locust.runners import LocalRunner, MasterRunner
from locust.stats import stats_history
from msgspec import Meta

from chassis.settings import NonNegativeFloat, Parse, Port, PositiveFloat, PositiveInt, Settings, load
from chassis.telemetry import logging
from chassis.values.hosts import LOOPBACK, parse_host_patterns
from load_generator.access import guarded
from load_generator.arrivals import arrivals
from load_generator.customers import Customers, source_of
from load_generator.figures import Figures

_POLL_SECONDS = 0.1


class LoadSettings(Settings):
    storefront_url: Annotated[str, Meta(pattern=r"^https?://[^/?#@]+/?\Z")]
    # How many sessions start per second, before the load shape's factor is applied.
    rate: Annotated[float, Meta(gt=0, le=10_000)] = 1
    shape: Literal["steady", "daily", "spike", "step"] = "steady"
    duration_seconds: PositiveFloat | None = None
    seed: str = field(default_factory=lambda: secrets.token_hex(4))
    # The mean time between a customer's requests.
    think_seconds: NonNegativeFloat = 2
    # To limit memory use, new arrivals are dropped while this many sessions are open.
    max_sessions: PositiveInt = 1000
    # Where to serve Locust's web UI, which has no login. Port 0 turns the UI off.
    web_host: str = "127.0.0.1"
    web_port: Port = 8089
    allowed_hosts: Annotated[frozenset[str], Parse(parse_host_patterns)] = LOOPBACK
    # If not 0, run as a master that waits for this many workers, which then simulate the customers.
    workers: Annotated[int, Meta(ge=0)] = 0
    master_port: Port = 5557
    # If set, run as a worker of the master at this `host:port`.
    master_addr: Annotated[str, Meta(pattern=r"^.+:\d+\Z")] | None = None
    # How often to print a line of figures.
    figures_seconds: PositiveFloat = 10


def main() -> int:
    """Run until the time limit or a signal. Return 1 if there were errors or dropped sessions, else 0."""
    settings = load(LoadSettings)
    logging.configure("load-generator", level=settings.log_level)
    sources = math.ceil(settings.rate)  # each Source starts at most one session per second (times the shape's factor)
    plan = partial(arrivals, settings.rate / sources, settings.shape, settings.duration_seconds)
    environment = Environment(host=settings.storefront_url)
    figures = Figures(environment)
    customers = Customers(environment, figures, settings.seed, settings.think_seconds, settings.max_sessions)
    environment.user_classes.append(source_of(customers, plan))
    if settings.master_addr:
        return _work(environment, settings.master_addr)
    stopped = Event()
    _call_on_signals(stopped.set)
    runner = _create_runner(environment, settings)
    while isinstance(runner, MasterRunner) and len(runner.clients.ready) < settings.workers:
        if stopped.wait(_POLL_SECONDS):
            return 0
    runner.start(sources, spawn_rate=sources)
    _print("started", seed=settings.seed, rate=settings.rate, shape=settings.shape)
    _report_until(stopped, settings, figures, customers)
    runner.stop()
    customers.wait_for_workers()
    runner.quit()
    summary = figures.summary()
    _print("summary", **summary)
    return 1 if summary["errors"] or summary["dropped"] else 0


def _create_runner(environment: Environment, settings: LoadSettings) -> LocalRunner | MasterRunner:
    """Create the runner for a single process or a master, and serve Locust's web UI unless it is turned off."""
    runner: LocalRunner | MasterRunner
    if settings.workers:
        runner = environment.create_master_runner(master_bind_port=settings.master_port)
    else:
        runner = environment.create_local_runner()
    if settings.web_port:
        host = settings.web_host.strip("[]")
        host = "0.0.0.0" if host == "::" and not socket.has_dualstack_ipv6() else host
        app = environment.create_web_ui(host, settings.web_port).app
        assert app is not None  # noqa: S101 - tells the type checker that the UI exists
        app.wsgi_app = guarded(app.wsgi_app, settings.allowed_hosts)  # type: ignore[assignment,method-assign]
        gevent.spawn(stats_history, runner)
    return runner


def _work(environment: Environment, master_addr: str) -> int:
    """Run as a Locust worker that simulates customers until the master quits or a signal arrives."""
    host, _, port = master_addr.rpartition(":")
    runner = environment.create_worker_runner(host, int(port))
    _call_on_signals(runner.quit)
    runner.greenlet.join()
    return 0


def _call_on_signals(stop: Callable[[], object]) -> None:
    for number in (signal.SIGINT, signal.SIGTERM):
        gevent.signal_handler(number, stop)


def _report_until(stopped: Event, settings: LoadSettings, figures: Figures, customers: Customers) -> None:
    """Print figures at intervals until the time limit, or until `stopped` is set."""
    end = time.monotonic() + (settings.duration_seconds or math.inf)
    while not stopped.wait(max(0.0, min(settings.figures_seconds, end - time.monotonic()))):
        figures.trim()
        if time.monotonic() >= end:
            return
        _print("figures", **figures.live(customers.in_flight))


def _print(event: str, **fields: Any) -> None:
    print(json.dumps({"event": event, **fields}), flush=True)  # noqa: T201 - scripts read this output


if __name__ == "__main__":
    sys.exit(main())
