"""Hosts and origins (RFC 6454) as requests name them, and the setting that lists hosts."""

import re
from collections.abc import Sequence

_NAME = r"[a-z0-9_-]+(?:\.[a-z0-9_-]+)*"
_HOST = rf"(?P<host>{_NAME}|\[[0-9a-f:.]+\])"
_AUTHORITY = re.compile(rf"{_HOST}\.?(?::(?P<port>[0-9]{{0,5}}))?")
ORIGIN = re.compile(rf"https?://(?P<authority>{_HOST}(?::[0-9]{{1,5}})?)")
_HOST_PATTERN = re.compile(rf"(?:\*\.)?{_HOST}")

LOOPBACK = frozenset({"localhost", "127.0.0.1", "[::1]"})


def parse_authority(authority: str) -> tuple[str, str] | None:
    """Return the host, in lower case, and the port of a `Host`; None if it is malformed.

    The default ports of HTTP and HTTPS count as none: some proxies add them, and browsers leave them out.
    """
    match = _AUTHORITY.fullmatch(authority.lower())
    if match is None:
        return None
    port = match["port"] or ""
    return match["host"], "" if port in {"80", "443"} else port


def authority_of(origin: str) -> tuple[str, str] | None:
    """Return the host and the port of an `Origin`, as `parse_authority` does; None if it is `null` or malformed."""
    match = ORIGIN.fullmatch(origin.lower())
    return parse_authority(match["authority"]) if match else None


def is_foreign(origin: str | None, site: str | None, host: str) -> bool:
    """Return whether a page of another origin sent a request with these `Origin`, `Sec-Fetch-Site` and `Host`.

    Pages can change neither, and programs send none. Browsers send one with each form, and the second always over
    https or to this machine. An origin's scheme is not compared: behind a proxy that ends TLS it is another.
    """
    is_other = origin is not None and authority_of(origin) != parse_authority(host)
    return is_other or site not in {None, "same-origin", "none"}


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
