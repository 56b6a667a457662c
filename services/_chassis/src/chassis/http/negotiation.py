"""Reads `Accept` and `Accept-Encoding` headers (RFC 9110)."""

import re
from collections.abc import Iterable

from starlette.datastructures import Headers

_QUALITY = re.compile(r"0(\.[0-9]{0,3})?|1(\.0{0,3})?")


def accepts_gzip(headers: Headers) -> bool:
    # `gzip;q=0` refuses gzip, even if `*` is accepted.
    qualities = accepted_qualities(headers.getlist("accept-encoding"))
    gzip = qualities.get("gzip", qualities.get("*", 0.0))
    return gzip > 0 and gzip >= qualities.get("identity", 0.0)


def accepted_qualities(lines: Iterable[str]) -> dict[str, float]:
    """Map each value in `Accept` or `Accept-Encoding` headers, in lower case, to its quality (0 if malformed)."""
    qualities: dict[str, float] = {}
    for element in ",".join(lines).split(","):
        value, *parameters = element.split(";")
        if name := value.strip().lower():
            qualities[name] = max(qualities.get(name, 0.0), _quality(parameters))
    return qualities


def _quality(parameters: Iterable[str]) -> float:
    for parameter in parameters:
        name, _, value = map(str.strip, parameter.partition("="))
        if name.lower() == "q":
            return float(value) if _QUALITY.fullmatch(value) else 0.0
    return 1.0
