"""The tracer, meter, logger and call durations of a process. `chassis.otlp` configures their export."""

import resource as process_resource
from collections.abc import Callable
from dataclasses import dataclass, field

from opentelemetry._logs import Logger
from opentelemetry.metrics import Meter, NoOpMeter
from opentelemetry.trace import NoOpTracer, Tracer

from chassis.metrics import CallDurations

SCOPE = "shop"


def durations(side: str) -> CallDurations:
    """Create the histograms of the calls that this process serves (`server`) or makes (`client`)."""
    return CallDurations(f"rpc.{side}.call.duration", f"Duration of {side} calls")


def http_durations() -> CallDurations:
    """Create the histogram of the HTTP requests that this process serves."""
    return CallDurations("http.server.request.duration", "Duration of HTTP requests")


@dataclass(frozen=True)
class Telemetry:
    """Telemetry of a process, passed to everything that serves or makes calls. The default exports nothing."""

    tracer: Tracer = field(default_factory=NoOpTracer)
    meter: Meter = field(default_factory=lambda: NoOpMeter(SCOPE))
    logger: Logger | None = None
    server_durations: CallDurations = field(default_factory=lambda: durations("server"))
    client_durations: CallDurations = field(default_factory=lambda: durations("client"))
    http_durations: CallDurations = field(default_factory=http_durations)
    shutdown: Callable[[], None] = lambda: None


def resident_bytes() -> int:
    """Return the resident memory of this process; its peak where the kernel has no /proc."""
    try:
        with open("/proc/self/statm", encoding="ascii") as statm:  # noqa: PTH123
            return int(statm.read().split()[1]) * process_resource.getpagesize()
    except OSError:
        return process_resource.getrusage(process_resource.RUSAGE_SELF).ru_maxrss * 1024
