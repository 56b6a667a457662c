"""Configures the telemetry of a process, by OpenTelemetry's own environment variables.

They are checked here, because the SDK replaces or logs invalid values, or fails later.
"""

import os
import re
from collections.abc import Mapping
from typing import Annotated, Literal

from msgspec import Meta

from chassis.settings import FilePath, Parse, PositiveFloat, PositiveInt, SecretStr, Settings, load
from chassis.telemetry.instruments import Telemetry
from chassis.telemetry.propagation import W3C, Propagation, load_propagation

# What both gRPC and HTTP accept as a header: name=value, separated by commas.
_HEADER = re.compile(r"\s*[A-Za-z0-9_.-]+\s*=[\x20-\x7e]*")


def _parse_headers(headers: str) -> SecretStr:
    if not all(_HEADER.fullmatch(header) for header in headers.split(",")):
        raise ValueError("must be name=value pairs of ASCII characters, separated by commas")
    return SecretStr(headers)


Headers = Annotated[SecretStr, Parse(_parse_headers)]


class OtlpSettings(Settings):
    """Settings of the telemetry. The exporters and the sampler of the SDK read most of them themselves."""

    otel_exporter_otlp_endpoint: str = ""
    otel_exporter_otlp_protocol: Literal["grpc", "http/protobuf"] = "grpc"
    otel_exporter_otlp_headers: Headers | None = None
    otel_exporter_otlp_traces_headers: Headers | None = None
    otel_exporter_otlp_metrics_headers: Headers | None = None
    otel_exporter_otlp_logs_headers: Headers | None = None
    otel_exporter_otlp_timeout: PositiveFloat = 10  # in seconds, unlike the other durations
    otel_exporter_otlp_compression: Literal["gzip"] | None = None
    otel_exporter_otlp_certificate: FilePath | None = None
    otel_exporter_otlp_client_certificate: FilePath | None = None
    otel_exporter_otlp_client_key: FilePath | None = None
    otel_traces_sampler: Literal[
        "always_on",
        "always_off",
        "traceidratio",
        "parentbased_always_on",
        "parentbased_always_off",
        "parentbased_traceidratio",
    ] = "parentbased_always_on"
    otel_traces_sampler_arg: Annotated[float, Meta(ge=0, le=1)] = 1
    otel_propagators: Annotated[Propagation, Parse(load_propagation)] = W3C
    otel_metric_export_interval: PositiveFloat = 60_000
    otel_bsp_schedule_delay: PositiveFloat = 5_000
    otel_bsp_max_queue_size: PositiveInt = 2_048
    otel_bsp_max_export_batch_size: PositiveInt = 512
    otel_blrp_schedule_delay: PositiveFloat = 1_000
    otel_blrp_max_queue_size: PositiveInt = 2_048
    otel_blrp_max_export_batch_size: PositiveInt = 512


def configure(service_name: str, environment: Mapping[str, str] = os.environ) -> Telemetry:
    """Export traces, metrics and logs over OTLP if OTEL_EXPORTER_OTLP_ENDPOINT is set; otherwise record nothing.

    Exit with status 2 and one line per invalid variable.
    """
    settings = load(OtlpSettings, environment)
    if not settings.otel_exporter_otlp_endpoint:
        return Telemetry(propagation=settings.otel_propagators)
    from chassis.telemetry.sdk import start_export  # noqa: PLC0415 - the SDK is a third of a service's start and memory

    return start_export(service_name, settings)
