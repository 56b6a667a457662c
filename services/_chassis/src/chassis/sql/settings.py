from typing import Annotated

from chassis.settings import MAX_PORT, Parse, SecretStr
from chassis.sql.url import libpq_url, sqlite_path

# Check these parameters here, because libpq checks them only when it connects.
_CHOICES = {
    "sslmode": ("allow", "disable", "prefer", "require", "verify-ca", "verify-full"),
    "target_session_attrs": ("any", "read-only", "read-write", "primary", "standby", "prefer-standby"),
}


def parse_database_url(url: str) -> SecretStr:
    """Return the URL. If it is malformed, raise ValueError without quoting it, because it may contain a password."""
    if sqlite_path(url) is not None:
        return SecretStr(url)
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
    if not all(not port or (port.isdecimal() and 0 < int(port) <= MAX_PORT) for port in ports):
        raise ValueError(f"the port is not a number from 1 to {MAX_PORT}")
    for name, choices in _CHOICES.items():
        if parts.get(name, choices[0]) not in choices:
            raise ValueError(f"the parameter {name} is none of {', '.join(choices)}")
    if not str(parts.get("connect_timeout", "0")).isdecimal():
        raise ValueError("the parameter connect_timeout is not a whole number")
    return SecretStr(url)


# A URL such as `sqlite:///file.db` or `postgresql://user:password@host/name`. It may contain a password.
DatabaseUrl = Annotated[SecretStr, Parse(parse_database_url)]
