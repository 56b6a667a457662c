"""Hosts as requests name them, and the settings that list them."""

import re
from collections.abc import Sequence

_NAME = r"[a-z0-9_-]+(?:\.[a-z0-9_-]+)*"
HOST = rf"(?P<host>{_NAME}|\[[0-9a-f:.]+\])"
_AUTHORITY = re.compile(rf"{HOST}\.?(?::(?P<port>[0-9]{{0,5}}))?")
_HOST_PATTERN = re.compile(rf"(?:\*\.)?{HOST}")


def parse_authority(authority: str) -> tuple[str, str] | None:
    """Return the host, in lower case, and the port of a `Host`; None if it is malformed.

    The default ports of HTTP and HTTPS count as none: some proxies add them, and browsers leave them out.
    """
    match = _AUTHORITY.fullmatch(authority.lower())
    if match is None:
        return None
    port = match["port"] or ""
    return match["host"], "" if port in {"80", "443"} else port


def is_listed(host: str, patterns: frozenset[str]) -> bool:
    """Return whether a host is listed by its name, or as a subdomain by `*.example.com`."""
    parents = host.split(".")
    return host in patterns or any(f"*.{'.'.join(parents[i:])}" in patterns for i in range(1, len(parents)))


def host_problem(hosts: Sequence[str], allowed: frozenset[str]) -> tuple[int, str] | None:
    """Return status and text for a request with these `Host` headers that is not to be served; None if it is.

    A page of any name can be rebound to this address (DNS rebinding), but its requests still carry that name. An empty
    set allows every host. HTTP/1.0 allows requests without one.
    """
    parsed = [parse_authority(host) for host in hosts]
    if len(parsed) > 1 or None in parsed:
        return 400, "Invalid Host header"
    if allowed and not any(host and is_listed(host[0], allowed) for host in parsed):
        return 421, "This host is not served here"
    return None


def parse_host_patterns(text: str) -> frozenset[str]:
    """Parse host names, such as api.example.com and *.example.com, separated by commas."""
    hosts = frozenset(part.strip().lower() for part in text.split(",") if part.strip())
    if not all(_HOST_PATTERN.fullmatch(host) for host in hosts):
        raise ValueError(
            "must be host names without ports, such as api.example.com, *.example.com, separated by commas"
        )
    return hosts
