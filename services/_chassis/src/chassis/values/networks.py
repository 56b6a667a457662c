import ipaddress


def network(address: str) -> str:
    """Return a client's IPv4 address or IPv6 /64 network, because a client can use any address in its /64."""
    try:
        parsed = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if parsed.version == 4:  # noqa: PLR2004
        return address
    return str(parsed.ipv4_mapped or ipaddress.ip_network((parsed, 64), strict=False))


def public_network(address: str) -> str | None:
    """Return the network of a public address, or None for any other address, which may be a proxy's."""
    found = network(address)
    try:
        return found if ipaddress.ip_address(found.partition("/")[0]).is_global else None
    except ValueError:
        return None
