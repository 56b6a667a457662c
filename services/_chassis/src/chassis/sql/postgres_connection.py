"""Connects to the server of a PostgreSQL URL that accepts it."""

import os
from typing import Any, TypeAlias
from urllib.parse import urlencode

import asyncpg

from chassis.sql.url import PostgresUrl

Connection: TypeAlias = "asyncpg.Connection[asyncpg.Record]"
Record: TypeAlias = asyncpg.Record

_SETTINGS = {"synchronous_commit": "on"}


class ServerUnreachable(Exception):
    """No server of the URL accepted a connection."""


ERRORS = (
    ServerUnreachable, OSError, asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError
)  # fmt: skip
"""What connecting and statements raise."""


async def connect(url: PostgresUrl, *, timeout_seconds: float) -> Connection:
    """Connect to the first server of a URL that accepts it. Raise ServerUnreachable with the last server's reason.

    Args:
        url: of the database.
        timeout_seconds: limit for each server; `connect_timeout` in the URL can only lower it. asyncpg's own limit is
            for all servers together: the first one that has vanished would use it up.
    """
    sessions = ["standby", "any"] if url.session == "prefer-standby" else [url.session]
    for name in ("sslrootcert", "sslcert", "sslkey", "sslcrl"):
        file = url.tls.get(name, "system")
        if file != "system" and not os.access(file, os.R_OK):
            raise ServerUnreachable(f"the file of the parameter {name} can't be read")
    limit = min(timeout_seconds, url.connect_seconds or timeout_seconds)
    reason: Exception | None = None
    for session in sessions:
        for host, port in url.servers:
            try:
                return await asyncpg.connect(host=host, port=port, timeout=limit, **_arguments(url, session))
            except asyncpg.ClientConfigurationError:
                raise
            except ERRORS as error:
                reason = error
    raise ServerUnreachable(_describe(reason)) from reason


def _describe(reason: Exception | None) -> str:
    if isinstance(reason, ConnectionError) and reason.errno:
        return os.strerror(reason.errno)  # asyncio's "Connect call failed" does not say why
    return str(reason) or "no answer in time"


def _arguments(url: PostgresUrl, session: str | None) -> dict[str, Any]:
    """Return what asyncpg.connect needs besides a server. It takes parameters of TLS only as a part of a URL."""
    arguments: dict[str, Any] = {
        "user": url.user,
        "password": url.password,
        "database": url.database,
        "target_session_attrs": session,
        "server_settings": {**url.settings, **_SETTINGS},
        "max_cached_statement_lifetime": 0,  # statements are few
        **url.other,
    }
    if url.tls.get("sslrootcert") == "system":
        arguments["ssl"] = True  # the certificate and its name are verified, by the system's authorities
    elif url.tls:
        arguments["dsn"] = f"postgresql:///?{urlencode(url.tls)}"
    return arguments
