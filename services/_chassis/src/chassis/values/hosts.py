import re

_NAME = r"[a-z0-9_-]+(?:\.[a-z0-9_-]+)*"
_HOST = rf"(?P<host>{_NAME}|\[[0-9a-f:.]+\])"
_AUTHORITY = re.compile(rf"{_HOST}\.?(?::(?P<port>[0-9]{{0,5}}))?")
ORIGIN = re.compile(rf"https?://(?P<authority>{_HOST}(?::[0-9]{{1,5}})?)")
_HOST_PATTERN = re.compile(rf"(?:\*\.)?{_HOST}")

LOOPBACK = frozenset({"localhost", "127.0.0.1", "[::1]"})


def parse_authority(authority: str) -> tuple[str, str] | None:
    """Split a `Host` header into the host, in lower case, and the port. Return None if the header is malformed."""
    match = _AUTHORITY.fullmatch(authority.lower())
    if match is None:
        return None
    port = match["port"] or ""
    return match["host"], "" if port in {"80", "443"} else port  # browsers omit these ports, but some proxies add them


def is_foreign(origin: str | None, site: str | None, host: str) -> bool:
    """Return whether another origin's page sent a request, given its `Origin`, `Sec-Fetch-Site` and `Host` headers.

    Pages can't change these headers. Browsers send `Origin` with forms, and `Sec-Fetch-Site` over HTTPS or to
    localhost. Other programs send neither. Schemes aren't compared, because a proxy that terminates TLS changes them.
    """
    if site is not None:  # Sec-Fetch-Site alone decides: Host can't be trusted, because a proxy may have rewritten it
        return site not in {"same-origin", "none"}
    named = ORIGIN.fullmatch((origin or "").lower())  # the origin `null` doesn't match
    return origin is not None and (named is None or parse_authority(named["authority"]) != parse_authority(host))


def host_problem(host: str | None, allowed: frozenset[str]) -> tuple[int, str] | None:
    """Return the status and message for refusing a request with this `Host` header, or None if the host is allowed.

    This prevents DNS rebinding: an attacker's domain may resolve to our address, but `Host` still names that domain. An
    empty set allows every host; `*.example.com` allows any subdomain. HTTP/1.0 requests may lack the header.
    """
    parsed = parse_authority(host or "")
    if parsed is None and host is not None:
        return 400, "Invalid Host header"
    name = parsed[0] if parsed else ""
    if not allowed or any(name == known or (known[0] == "*" and name.endswith(known[1:])) for known in allowed):
        return None
    return 421, "This host is not served here"


def parse_host_patterns(text: str) -> frozenset[str]:
    hosts = frozenset(part.strip().lower() for part in text.split(",") if part.strip())
    if not all(_HOST_PATTERN.fullmatch(host) for host in hosts):
        raise ValueError("must be host names without ports, such as api.example.com,*.example.com, separated by commas")
    return hosts
