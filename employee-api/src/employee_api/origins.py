"""Origins (RFC 6454) as requests name them, and the setting that lists them."""

import re

from chassis.values.hosts import HOST, parse_authority

_ORIGIN = re.compile(rf"https?://(?P<authority>{HOST}(?::[0-9]{{1,5}})?)")
_DEFAULT_PORTS = {"http": ":80", "https": ":443"}


def authority_of(origin: str) -> tuple[str, str] | None:
    """Return the host and the port of an `Origin`, as `parse_authority` does; None if it is `null` or malformed."""
    match = _ORIGIN.fullmatch(origin.lower())
    return parse_authority(match["authority"]) if match else None


def parse_origins(text: str) -> frozenset[str]:
    """Parse origins, separated by commas, and return them as browsers send them."""
    origins = frozenset(part.strip().lower() for part in text.split(",") if part.strip())
    if not all(_ORIGIN.fullmatch(origin) for origin in origins):
        raise ValueError("must be exact origins, such as https://app.example.com, separated by commas")
    return frozenset(origin.removesuffix(_DEFAULT_PORTS[origin.partition(":")[0]]) for origin in origins)
