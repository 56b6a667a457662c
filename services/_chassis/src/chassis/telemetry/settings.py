"""Validates OpenTelemetry's environment variables. The SDK would log or replace invalid values, or fail later."""

import re
from typing import Annotated, Literal

from msgspec import Meta

from chassis.settings import FilePath, Parse, PositiveFloat, PositiveInt, SecretStr, Settings
from chassis.telemetry.propagation import W3C, Propagation, load_propagation

# Matches `name=value` for any header that both gRPC and HTTP accept.
_HEADER = re.compile(r"\s*[A-Za-z0-9_.-]+\s*=[\x20-\x7e]*")


# The gRPC exporter also takes `host:port` and gRPC's own names, such as `unix:/run/collector.sock`.
_ENDPOINT = re.compile(r"[a-z]+:/\S+|[^\s/]+:[0-9]+")


def _parse_headers(headers: str) -> SecretStr:
    if not all(_HEADER.fullmatch(header) for header in headers.split(",")):
        raise ValueError("must be name=value pairs of ASCII characters, separated by commas")
    return SecretStr(headers)


def _parse_endpoint(endpoint: str) -> str:
    if endpoint and not _ENDPOINT.fullmatch(endpoint):
        raise ValueError("must be a URL, such as http://collector:4317")
    return endpoint


Headers = Annotated[SecretStr, Parse(_parse_headers)]


class OtlpSettings(Settings):
    """Telemetry settings. The SDK's exporters and sampler read most of these variables themselves."""

    otel_exporter_otlp_endpoint: Annotated[str, Parse(_parse_endpoint)] = ""
    otel_exporter_otlp_protocol: Literal["grpc", "http/protobuf"] = "grpc"
    otel_exporter_otlp_headers: Headers | None = None
    otel_exporter_otlp_traces_headers: Headers | None = None
    otel_exporter_otlp_metrics_headers: Headers | None = None
    otel_exporter_otlp_logs_headers: Headers | None = None
    otel_exporter_otlp_timeout: PositiveFloat = 10  # in seconds, while the durations below are in milliseconds
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
