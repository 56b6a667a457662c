"""What clients accept: the lists with qualities of `Accept` and `Accept-Encoding` (RFC 9110, section 12.4.2)."""

import re
from collections.abc import Iterable

_QUALITY = re.compile(r"\s*q\s*=\s*(0(?:\.[0-9]{0,3})?|1(?:\.0{0,3})?)\s*", re.IGNORECASE)


def accepted_qualities(lines: Iterable[str]) -> dict[str, float]:
    """Return the quality of each value that the header lists, in lower case; a malformed quality counts as 0."""
    qualities: dict[str, float] = {}
    for element in ",".join(lines).split(","):
        value, *parameters = element.split(";")
        if name := value.strip().lower():
            qualities[name] = max(qualities.get(name, 0.0), _quality(parameters))
    return qualities


def _quality(parameters: Iterable[str]) -> float:
    for parameter in parameters:
        if parameter.strip().lower().startswith("q"):
            match = _QUALITY.fullmatch(parameter)
            return float(match[1]) if match else 0.0
    return 1.0
