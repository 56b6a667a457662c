"""Counts the requests that a port refuses because of its limits, and logs the counts at most every ten seconds."""

import asyncio
from collections import Counter

import structlog

from chassis.telemetry import semconv
from chassis.telemetry.instruments import Telemetry

log = structlog.get_logger()

_LOG_SECONDS = 10


class Refusals:
    def __init__(self, port_name: str, telemetry: Telemetry, *reasons: str) -> None:
        self._port_name = port_name
        self._counter = telemetry.counter(semconv.SHED_REQUESTS)
        self._unlogged: Counter[str] = Counter()
        for reason in reasons:  # export 0 from the start, or alerts would miss the first increase
            self._count(reason, 0)

    def add(self, reason: str) -> None:
        self._count(reason, 1)
        if not self._unlogged:  # log later, and only once, because a flood of requests must not flood the log
            asyncio.get_running_loop().call_later(_LOG_SECONDS, self._log)
        self._unlogged[reason] += 1

    def _count(self, reason: str, number: int) -> None:
        self._counter.add(number, ((semconv.PORT_NAME, self._port_name), (semconv.SHED_REASON, reason)))

    def _log(self) -> None:
        log.warning("requests refused", port=self._port_name, **self._unlogged)
        self._unlogged.clear()
