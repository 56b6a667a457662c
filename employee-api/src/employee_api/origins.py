"""The setting that lists origins (RFC 6454)."""

from chassis.values.hosts import ORIGIN

_DEFAULT_PORTS = {"http": ":80", "https": ":443"}


def parse_origins(text: str) -> frozenset[str]:
    """Parse origins, separated by commas, and return them as browsers send them."""
    origins = frozenset(part.strip().lower() for part in text.split(",") if part.strip())
    if not all(ORIGIN.fullmatch(origin) for origin in origins):
        raise ValueError("must be exact origins, such as https://app.example.com, separated by commas")
    return frozenset(origin.removesuffix(_DEFAULT_PORTS[origin.partition(":")[0]]) for origin in origins)
