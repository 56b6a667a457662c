"""Structured logs: one JSON object per line on standard output, with the current trace and span ids.

An event is a short phrase with fields: `log.info("charged", order_id=order_id)`. Card numbers in any
field are masked. Wrap other secrets in types such as SecretStr: this module doesn't search for them.
"""

import logging
import sys
from collections.abc import MutableMapping
from functools import partial
from typing import Any

import orjson
import structlog
from opentelemetry._logs import Logger, LogRecord, SeverityNumber
from typing_extensions import override

from chassis.telemetry.propagation import current_context, current_span_context
from chassis.values.cards import mask_cards

Event = MutableMapping[str, Any]

# Levels that OpenTelemetry names differently.
_SEVERITIES = {"WARNING": "WARN", "CRITICAL": "FATAL"}


def configure(service_name: str, *, level: str = "info", logger: Logger | None = None, final: bool = False) -> None:
    """Configure logging for the process.

    Args:
        logger: if given, every event is also exported over OTLP.
        final: whether loggers may cache the configuration, because it won't change again.
    """
    number = logging.getLevelNamesMapping()[level.upper()]
    processors: list[structlog.types.Processor] = [
        structlog.contextvars.merge_contextvars,  # adds the fields of the request being served
        structlog.processors.format_exc_info,
        lambda _logger, _method, event: {key: _mask(value) for key, value in event.items()},
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True, key="time"),
        _add_trace_ids,
    ]
    if logger is not None:
        # Export events before the service name is added, because the exported resource already contains the name.
        processors.append(partial(_export, logger))
    processors += [
        lambda _logger, _method, event: {**event, "service": service_name},
        structlog.processors.JSONRenderer(serializer=orjson.dumps, default=str),
    ]
    structlog.configure(
        processors=processors,
        wrapper_class=structlog.make_filtering_bound_logger(number),
        logger_factory=structlog.BytesLoggerFactory(sys.stdout.buffer),
        cache_logger_on_first_use=final,
    )
    # Ignore libraries' info logs, which contain details that only their developers need.
    logging.basicConfig(handlers=[_StructlogHandler()], level=max(number, logging.WARNING), force=True)


def _mask(value: Any) -> Any:
    if isinstance(value, int | float | None):
        return value
    return [*map(_mask, value)] if isinstance(value, list) else mask_cards(str(value))


def _add_trace_ids(_logger: Any, _method: str, event: Event) -> Event:
    context = current_span_context()
    if context.is_valid:
        event["trace_id"] = f"{context.trace_id:032x}"
        event["span_id"] = f"{context.span_id:016x}"
    return event


def _export(logger: Logger, _logger: Any, _method: str, event: Event) -> Event:
    """Emit an event as an OpenTelemetry log record in the current span's context."""
    level = event["level"].upper()
    skipped = ("event", "level", "time", "trace_id", "span_id")
    logger.emit(
        LogRecord(
            context=current_context(),
            severity_text=level,
            severity_number=SeverityNumber[_SEVERITIES.get(level, level)],
            body=str(event["event"]),
            attributes={
                key: value if isinstance(value, str | int | float | bool) else str(value)
                for key, value in event.items()
                if key not in skipped
            },
        )
    )
    return event


class _StructlogHandler(logging.Handler):
    """Forwards libraries' log records to structlog."""

    @override
    def emit(self, record: logging.LogRecord) -> None:
        log = structlog.get_logger(source=record.name)
        log.log(record.levelno, record.getMessage(), exc_info=record.exc_info)
