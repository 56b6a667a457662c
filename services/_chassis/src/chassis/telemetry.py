"""Traces, metrics and logs over OTLP, all of them off until an endpoint is set.

Settings are OpenTelemetry's own: OTEL_EXPORTER_OTLP_ENDPOINT, OTEL_TRACES_SAMPLER, OTEL_TRACES_SAMPLER_ARG,
OTEL_RESOURCE_ATTRIBUTES, OTEL_METRIC_EXPORT_INTERVAL, OTEL_BSP_*.
"""

import os
import resource as process_resource
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from opentelemetry._logs import Logger
from opentelemetry.metrics import Meter, NoOpMeter
from opentelemetry.trace import NoOpTracer, Tracer

from chassis.metrics import CallDurations

SCOPE = "shop"


def durations(side: str) -> CallDurations:
    """The histograms of the calls that this process serves (`server`) or makes (`client`)."""
    return CallDurations(f"rpc.{side}.call.duration", f"Duration of {side} calls")


@dataclass(frozen=True)
class Telemetry:
    """What the process measures itself with. Passed to whatever serves or calls; the default measures nothing."""

    tracer: Tracer = field(default_factory=NoOpTracer)
    meter: Meter = field(default_factory=lambda: NoOpMeter(SCOPE))
    logger: Logger | None = None
    server_durations: CallDurations = field(default_factory=lambda: durations("server"))
    client_durations: CallDurations = field(default_factory=lambda: durations("client"))
    shutdown: Callable[[], None] = lambda: None


def configure(service_name: str, environment: Mapping[str, str] = os.environ) -> Telemetry:
    """Telemetry of this process: exporting when OTEL_EXPORTER_OTLP_ENDPOINT is set, else none.

    Imports the SDK and its exporters only when they are used: they take a third of a service's start and memory.
    """
    if not environment.get("OTEL_EXPORTER_OTLP_ENDPOINT"):
        return Telemetry()
    from chassis import otlp  # noqa: PLC0415

    return otlp.exporting(service_name)


def resident_bytes() -> int:
    """Resident memory of this process, from the kernel where it tells, else its peak."""
    try:
        with open("/proc/self/statm", encoding="ascii") as statm:  # noqa: PTH123
            return int(statm.read().split()[1]) * process_resource.getpagesize()
    except OSError:
        return process_resource.getrusage(process_resource.RUSAGE_SELF).ru_maxrss * 1024
