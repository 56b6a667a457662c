"""Hosts and origins (RFC 6454) as requests name them, and the settings that list them."""

import re

_NAME = r"[a-z0-9_-]+(?:\.[a-z0-9_-]+)*"
_HOST = rf"(?P<host>{_NAME}|\[[0-9a-f:.]+\])"
_AUTHORITY = re.compile(rf"{_HOST}\.?(?::(?P<port>[0-9]{{0,5}}))?")
_ORIGIN = re.compile(rf"https?://(?P<authority>{_HOST}(?::[0-9]{{1,5}})?)")
_HOST_PATTERN = re.compile(rf"(?:\*\.)?{_HOST}")
_DEFAULT_PORTS = {"http": ":80", "https": ":443"}


def parse_authority(authority: str) -> tuple[str, str] | None:
    """Return the host, in lower case, and the port of a `Host`; None if it is malformed.

    The default ports of HTTP and HTTPS count as none: some proxies add them, and browsers leave them out.
    """
    match = _AUTHORITY.fullmatch(authority.lower())
    if match is None:
        return None
    port = match["port"] or ""
    return match["host"], "" if f":{port}" in _DEFAULT_PORTS.values() else port


def authority_of(origin: str) -> tuple[str, str] | None:
    """Return the host and the port of an `Origin`, as `parse_authority` does; None if it is `null` or malformed."""
    match = _ORIGIN.fullmatch(origin.lower())
    return parse_authority(match["authority"]) if match else None


def is_listed(host: str, patterns: frozenset[str]) -> bool:
    """Return whether a host is listed by its name, or as a subdomain by `*.example.com`."""
    parents = host.split(".")
    return host in patterns or any(f"*.{'.'.join(parents[i:])}" in patterns for i in range(1, len(parents)))


def _split(text: str) -> frozenset[str]:
    return frozenset(part.strip().lower() for part in text.split(",") if part.strip())


def parse_host_patterns(text: str) -> frozenset[str]:
    """Parse host names, such as api.example.com and *.example.com, separated by commas."""
    hosts = _split(text)
    if not all(_HOST_PATTERN.fullmatch(host) for host in hosts):
        raise ValueError(
            "must be host names without ports, such as api.example.com, *.example.com, separated by commas"
        )
    return hosts


def parse_origins(text: str) -> frozenset[str]:
    """Parse origins, separated by commas, and return them as browsers send them."""
    origins = _split(text)
    if not all(_ORIGIN.fullmatch(origin) for origin in origins):
        raise ValueError("must be exact origins, such as https://app.example.com, separated by commas")
    return frozenset(origin.removesuffix(_DEFAULT_PORTS[origin.partition(":")[0]]) for origin in origins)
