"""URLs of PostgreSQL servers, as libpq defines them, for asyncpg.

asyncpg sends a parameter that it does not know to the server as a setting, so each is translated here, or refused.
https://www.postgresql.org/docs/current/libpq-connect.html#LIBPQ-PARAMKEYWORDS
"""

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import unquote

_SYNTAX = re.compile(
    r"postgres(?:ql)?://(?:(?P<user>[^:@/?]*)(?::(?P<password>[^@/?]*))?@)?"
    r"(?P<servers>[^/?]*)(?:/(?P<dbname>[^?]*))?(?:\?(?P<query>.*))?"
)
_SERVER = re.compile(r"(?P<host>\[[^\[\]]+\]|[^:\[\]]*)(?::(?P<port>.*))?")
_INVALID_ESCAPE = re.compile(r"%(?![0-9a-fA-F]{2})|%00")


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


_TLS = _names("""
    sslmode sslrootcert sslcert sslkey sslpassword sslcrl sslnegotiation ssl_min_protocol_version
    ssl_max_protocol_version
""")
_TRANSLATED = _TLS | _names("""
    host port dbname user password passfile connect_timeout target_session_attrs application_name
    fallback_application_name options krbsrvname gsslib
""")
_REDUNDANT: Mapping[str, frozenset[str]] = {
    # asyncpg does what these values say, and nothing else.
    "client_encoding": frozenset({"utf8", "utf-8"}),
    "gssencmode": frozenset({"disable", "prefer"}),
    "channel_binding": frozenset({"disable", "prefer"}),
    "load_balance_hosts": frozenset({"disable"}),
    "sslcertmode": frozenset({"allow"}),
    "sslcompression": frozenset({"0"}),
    "sslsni": frozenset({"1"}),
}
_NOT_SUPPORTED = _names("""
    gssdelegation hostaddr keepalives keepalives_count keepalives_idle keepalives_interval max_protocol_version
    min_protocol_version oauth_client_id oauth_client_secret oauth_issuer oauth_scope replication require_auth
    requirepeer requiressl scram_client_key scram_server_key service servicefile sslcrldir sslkeylogfile
    tcp_user_timeout
""")
_MAX_PORT = 65_535
_SESSIONS = {"any", "primary", "standby", "prefer-standby", "read-write", "read-only"}
_TLS_MODES = {"disable", "allow", "prefer", "require", "verify-ca", "verify-full"}


@dataclass(frozen=True, slots=True)
class PostgresUrl:
    """The parts of a URL, decoded. Without a value, libpq's environment variables and defaults apply.

    Attributes:
        servers: host and port of each, in the order in which they are tried.
        session: the kind of server that is accepted, a value of `target_session_attrs`.
        connect_seconds: upper limit of the time for a connection to one server.
        settings: of the session, by name.
        tls: parameters such as `sslmode`, by name.
        other: parameters that asyncpg takes by the same name.
    """

    servers: tuple[tuple[str | None, int | None], ...]
    user: str | None
    password: str | None = field(repr=False)
    database: str | None
    session: str | None
    connect_seconds: float | None
    settings: Mapping[str, str]
    tls: Mapping[str, str] = field(repr=False)
    other: Mapping[str, str]

    @classmethod
    def parse(cls, url: str) -> "PostgresUrl":
        """Parse a URL. Raise ValueError, without quoting a part that may be of a password."""
        parts = _split(url)
        settings = {"application_name": parts.get("application_name") or parts.get("fallback_application_name", "")}
        settings["options"] = parts.get("options", "")
        return cls(
            _servers(parts.get("host", ""), parts.get("port", "")),
            parts.get("user"),
            parts.get("password"),
            parts.get("dbname"),
            _one_of(_SESSIONS, parts, "target_session_attrs"),
            _seconds(parts.get("connect_timeout", "")),
            {name: value for name, value in settings.items() if value},
            {name: parts[name] for name in _TLS & parts.keys()},
            {name: parts[name] for name in ("passfile", "krbsrvname", "gsslib") if name in parts},
        )


def _split(url: str) -> dict[str, str]:
    """Return the parameters of a URL by libpq's names for them, but for empty ones."""
    # libpq would take a part of such a password for the host or the database, and name that in its errors.
    server = url.partition("://")[2].partition("?")[0]
    if "@" in server.partition("@")[2] or "@" in server.partition("/")[2]:
        raise ValueError("special characters of a password must be percent-encoded")
    found = _SYNTAX.fullmatch(url)
    if found is None or any(character.isspace() for character in url) or _INVALID_ESCAPE.search(url):
        raise _malformed()
    parts = _environment() | {name: unquote(found[name] or "") for name in ("user", "password", "dbname")}
    parts["host"], parts["port"] = _split_servers(found["servers"])
    for each in (found["query"] or "").split("&") if found["query"] else ():
        name, separator, value = each.partition("=")
        if not separator or "=" in value:
            raise _malformed()
        name, value = unquote(name), unquote(value)
        if (name, value) == ("ssl", "true"):  # the JDBC driver's, which libpq accepts
            name, value = "sslmode", "require"
        _check_supported(name, value)
        parts[name] = value
    mode = _one_of(_TLS_MODES, parts, "sslmode")
    if parts.get("sslrootcert") == "system" and (mode not in {None, "verify-full"} or parts.get("sslcert")):
        raise ValueError("the parameter sslrootcert supports system only with sslmode=verify-full and without sslcert")
    return {name: value for name, value in parts.items() if value}


def _environment() -> dict[str, str]:
    """Return the parameters that libpq's variables set, but for those that asyncpg reads by itself."""
    names = (_TLS | _REDUNDANT.keys() | _NOT_SUPPORTED | {"target_session_attrs"}) - {"servicefile"}
    found = {name: os.environ.get(f"PG{name.replace('_', '').upper()}", "") for name in names}
    for name, value in found.items():
        if value:
            _check_supported(name, value)
    return found | {"application_name": os.environ.get("PGAPPNAME", "")}


def _split_servers(text: str) -> tuple[str, str]:
    """Return hosts and ports, each separated by commas as in libpq's parameters of these names."""
    found = [_SERVER.fullmatch(each) for each in text.split(",")]
    hosts, ports = [], []
    for each in found:
        if each is None:
            raise _malformed()
        hosts.append(unquote(each["host"].strip("[]")))
        ports.append(each["port"] or "")
    return (",".join(hosts) if any(hosts) else ""), (",".join(ports) if any(ports) else "")


def _servers(hosts: str, ports: str) -> tuple[tuple[str | None, int | None], ...]:
    names, numbers = hosts.split(","), ports.split(",")
    if not all(not number or (number.isdecimal() and 0 < int(number) <= _MAX_PORT) for number in numbers):
        raise ValueError(f"the port is not a number from 1 to {_MAX_PORT}")
    if len(numbers) == 1:
        numbers *= len(names)
    if len(numbers) != len(names):
        raise ValueError(f"host and port have {len(names)} and {len(numbers)} values: give one port, or one for each")
    return tuple((name or None, int(number) if number else None) for name, number in zip(names, numbers, strict=True))


def _check_supported(name: str, value: str) -> None:
    """Raise ValueError unless asyncpg can do what a parameter says."""
    if name in _TRANSLATED or value.lower() in _REDUNDANT.get(name, ()):
        return
    if name in _REDUNDANT:
        raise ValueError(f"the parameter {name} supports only {' or '.join(sorted(_REDUNDANT[name]))}")
    if name in _NOT_SUPPORTED:
        raise ValueError(f"the parameter {name} is not supported")
    raise _malformed()  # without the name: it may be a part of a password with a question mark


def _one_of(allowed: set[str], parts: Mapping[str, str], name: str) -> str | None:
    value = parts.get(name) or None
    if value is not None and value not in allowed:
        raise ValueError(f"the parameter {name} is none of {', '.join(sorted(allowed))}")
    return value


def _seconds(text: str) -> float | None:
    """Return the value of connect_timeout; None for libpq's default, also written as 0 or less."""
    try:
        seconds = int(text or "0")
    except ValueError:
        raise ValueError("the parameter connect_timeout is not a whole number of seconds") from None
    return float(seconds) if seconds > 0 else None


def _malformed() -> ValueError:
    return ValueError("not a URL that libpq accepts; special characters must be percent-encoded")
