"""Structured logs: one JSON object per line on standard output, with the current trace and span ids.

An event is a short phrase with fields: `log.info("charged", order_id=order_id)`. Wrap secrets in
types such as SecretStr, which mask them, because this module doesn't search events for secrets.
"""

import logging
import re
import sys
import traceback
from collections.abc import MutableMapping
from functools import partial
from typing import Any

import orjson
import structlog
from opentelemetry._logs import Logger, LogRecord, SeverityNumber
from typing_extensions import override

from chassis.telemetry.propagation import current_context, current_span_context

Event = MutableMapping[str, Any]

_LONG_NUMBER = re.compile(r"[0-9](?:[ -]?[0-9]){11,}")
_CARD = re.compile(r"(?<![0-9A-Fa-f-])[0-9]{12,19}(?![0-9A-Fa-f-])")

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
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True, key="time"),
        structlog.processors.ExceptionRenderer(_format_traceback),
        _add_trace_ids,
        structlog.contextvars.merge_contextvars,  # adds the fields of the request being served
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


def mask_cards(text: str) -> str:
    """Mask possible card numbers, but not UUIDs, in a path or an id."""
    return _CARD.sub("[number]", text)


def _format_traceback(exc_info: structlog.typing.ExcInfo) -> str:
    """Format a traceback and mask long numbers in it, because an exception's message may quote a card number."""
    return _LONG_NUMBER.sub("[number]", "".join(traceback.format_exception(*exc_info)))


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
        log.log(record.levelno, _LONG_NUMBER.sub("[number]", record.getMessage()), exc_info=record.exc_info)
