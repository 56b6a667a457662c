"""Reads services' log files, which contain JSON lines and any other text that a process has printed."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

# How many bytes to read from the end of a log file.
_MAX_BYTES = 4 * 1024 * 1024
_OWN_FIELDS = frozenset({"event", "level", "time", "service", "trace_id", "span_id"})


@dataclass(frozen=True)
class LogLine:
    """A log line. If it isn't JSON, `event` is the whole line, and only `service` is known."""

    time: str
    level: str
    service: str
    event: str
    fields: dict[str, Any]
    trace_id: str


def read_log(path: Path, limit: int, trace_id: str = "") -> list[LogLine]:
    """Return at most the last `limit` lines of a log, oldest first. With `trace_id`, return only that trace's lines.

    Return no lines if the file does not exist.
    """
    lines = [line for line in _tail(path) if trace_id in line]
    return [parse_line(line, path.stem) for line in lines[-limit:]]


def lines_of_trace(paths: Iterable[Path], trace_id: str, limit: int = 500) -> Sequence[LogLine]:
    """Return a trace's lines from several logs, sorted by time."""
    found = [line for path in paths for line in read_log(path, limit, trace_id)]
    return sorted(found, key=lambda line: line.time)


def parse_line(text: str, service: str) -> LogLine:
    try:
        event = json.loads(text)
    except ValueError:
        event = None
    if not isinstance(event, dict):
        return LogLine("", "", service, text, {}, "")
    fields = {name: value for name, value in event.items() if name not in _OWN_FIELDS}
    known = {name: str(event.get(name, "")) for name in ("time", "level", "event", "trace_id")}
    return LogLine(**known, service=service, fields=fields)


def _tail(path: Path) -> list[str]:
    try:
        with path.open("rb") as file:
            size = file.seek(0, 2)
            start = file.seek(max(0, size - _MAX_BYTES))
            lines = file.read().decode(errors="replace").splitlines()
    except FileNotFoundError:
        return []
    return lines[1:] if start else lines
