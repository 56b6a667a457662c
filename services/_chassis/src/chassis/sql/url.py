"""Database URLs: `sqlite:///relative.db`, `sqlite:////absolute.db`, or any `postgresql://` URL that libpq accepts."""

from pathlib import Path

_MAX_PORT = 65_535
# Check these parameters here, because libpq checks them only when it connects.
_CHOICES = {
    "sslmode": ("allow", "disable", "prefer", "require", "verify-ca", "verify-full"),
    "target_session_attrs": ("any", "read-only", "read-write", "primary", "standby", "prefer-standby"),
}


class DatabaseUnusable(OSError):
    """The process can't use its database at startup. The message is one line and never contains the password."""

    def __init__(self, reason: object) -> None:
        super().__init__(f"DATABASE_URL: {' '.join(str(reason).split())}")


def sqlite_path(url: str) -> Path | None:
    """Return the file path in a `sqlite:///` URL, or None for any other URL."""
    name = url.removeprefix("sqlite:///")
    return Path(name) if name != url and name else None


def libpq_url(url: str) -> str:
    """Remove SQLAlchemy's driver name from a PostgreSQL URL. Raise ValueError for other URLs, without quoting them."""
    scheme, separator, rest = url.partition("://")
    if not separator or scheme.partition("+")[0] not in {"postgresql", "postgres"}:
        raise ValueError("a database URL begins with sqlite:/// or postgresql://")
    return f"postgresql://{rest}"


def validate_url(url: str) -> None:
    """Raise ValueError if a URL is malformed. The message doesn't quote the URL, which may contain a password."""
    if sqlite_path(url) is not None:
        return
    libpq = libpq_url(url)
    # libpq would mistake part of an unescaped password for the host or database name, and quote that part in errors.
    server = libpq.partition("://")[2].partition("?")[0]
    if "@" in server.partition("@")[2] or "@" in server.partition("/")[2]:
        raise ValueError("special characters of a password must be percent-encoded")
    import psycopg.conninfo  # noqa: PLC0415 - importing it takes 9 MB, and is only needed for PostgreSQL

    malformed = ValueError("not a URL that libpq accepts; special characters must be percent-encoded")
    if any(character.isspace() for character in libpq):
        raise malformed
    try:
        parts = psycopg.conninfo.conninfo_to_dict(libpq)
    except psycopg.ProgrammingError:  # don't chain this error: its message may quote part of the password
        raise malformed from None
    ports = str(parts.get("port", "")).split(",")
    if not all(not port or (port.isdecimal() and 0 < int(port) <= _MAX_PORT) for port in ports):
        raise ValueError(f"the port is not a number from 1 to {_MAX_PORT}")
    for name, choices in _CHOICES.items():
        if parts.get(name, choices[0]) not in choices:
            raise ValueError(f"the parameter {name} is none of {', '.join(choices)}")
    if not str(parts.get("connect_timeout", "0")).isdecimal():
        raise ValueError("the parameter connect_timeout is not a whole number")
