"""With the variables of `values-production.yaml`, services speak TLS and verify PostgreSQL's and Valkey's certificates.

The test servers are built without TLS: a proxy in this process terminates it.
"""

import asyncio
import os
import re
import socket
import ssl
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit

import pytest
import redis.asyncio
import yaml
from psycopg.conninfo import conninfo_to_dict

from chassis.sql.migrate import DatabaseUnusable, stored_revision

CHART = Path(__file__).resolve().parents[2] / "charts" / "shop"
SSL_REQUEST = bytes.fromhex("0000000804d2162f")
CA_MOUNT, TLS_MOUNT = "/etc/shop-ca", "/etc/shop-tls"

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]
StartTls = Callable[[Streams, ssl.SSLContext], Awaitable[None]]


def new_authority(folder: Path) -> Path:
    """Create a certificate authority, `ca.crt`, and with it a server certificate of `localhost`."""
    new_key = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "1")
    ca = ("-addext", "keyUsage=critical,keyCertSign")  # Python 3.13 rejects an authority without it
    server = ("-CA", "ca.crt", "-CAkey", "ca.key", "-addext", "subjectAltName=DNS:localhost")
    for name, arguments in {"ca": ca, "tls": (*server, "-addext", "basicConstraints=critical,CA:FALSE")}.items():
        files = ("-subj", f"/CN={name}", "-keyout", f"{name}.key", "-out", f"{name}.crt")
        command = ["openssl", "req", "-x509", *new_key, *files, *arguments]
        subprocess.run(command, cwd=folder, check=True, capture_output=True)
    return folder


@pytest.fixture(scope="session")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return new_authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="session")
def other_authority(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return new_authority(tmp_path_factory.mktemp("other-authority"))


async def start_tls_of_postgresql(client: Streams, context: ssl.SSLContext) -> None:
    """Grant libpq's request for TLS; raise ConnectionError if the client sends anything else first."""
    if await client[0].readexactly(len(SSL_REQUEST)) != SSL_REQUEST:
        raise ConnectionError("the client does not encrypt")
    client[1].write(b"S")
    await client[1].start_tls(context)


async def start_tls_of_valkey(client: Streams, context: ssl.SSLContext) -> None:
    await client[1].start_tls(context)


async def copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    writer.close()


@asynccontextmanager
async def tls_proxy(unix_socket: str, start_tls: StartTls, authority: Path) -> AsyncIterator[int]:
    """Terminate TLS on localhost with the authority's server certificate, forward to a socket; yield the port."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(authority / "tls.crt", authority / "tls.key")
    forwarded: set[asyncio.Task[None]] = set()

    async def forward(client: Streams) -> None:
        with aborted_at_end(client[1]), suppress(OSError, asyncio.IncompleteReadError):
            await start_tls(client, context)  # fails for a client that rejects the certificate
            reader, writer = await asyncio.open_unix_connection(unix_socket)
            with aborted_at_end(writer):
                await asyncio.gather(copy(client[0], writer), copy(reader, client[1]))

    def accept(*client: Any) -> None:
        forwarded.add(asyncio.create_task(forward(client)))

    server = await asyncio.start_server(accept, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        for task in forwarded:
            task.cancel()
        await asyncio.gather(*forwarded, return_exceptions=True)
        await asyncio.sleep(0)  # aborted transports close their sockets in the next turn of the loop


@contextmanager
def aborted_at_end(writer: asyncio.StreamWriter) -> Iterator[None]:
    try:
        yield
    finally:
        writer.transport.abort()


def postgres_proxy(url: str, authority: Path) -> AbstractAsyncContextManager[int]:
    parts = conninfo_to_dict(url)
    return tls_proxy(f"{parts['host']}/.s.PGSQL.{parts['port']}", start_tls_of_postgresql, authority)


def valkey_proxy(url: str, authority: Path) -> AbstractAsyncContextManager[int]:
    return tls_proxy(urlsplit(url).path, start_tls_of_valkey, authority)


@pytest.fixture(scope="session")
def production(render: Any) -> Any:
    return render(yaml.safe_load((CHART / "values-production.yaml").read_text()))


def variables(production: Any, service: str, authority: Path, **addresses: str) -> dict[str, str]:
    """Return a service's rendered variables, with a folder for the mounted one and test servers for the real ones."""
    rendered = {name: value for name, value in production.environment(service).items() if value is not None}
    local = {name: re.sub(f"{CA_MOUNT}|{TLS_MOUNT}", str(authority), value) for name, value in rendered.items()}
    kept = {name: value for name, value in local.items() if not name.startswith(("OTEL_", "REDIS_URL"))}
    return {**kept, "HEALTH_PORT": "0", "HMAC_KEY": "k" * 32, "DRAIN_SECONDS": "0", **addresses}


def rediss_url(production: Any, authority: Path, port: int, host: str = "localhost") -> str:
    """Return the rendered address of Valkey, for a test server without a password."""
    rendered = str(production.environment("cart")["REDIS_URL"])
    local = rendered.replace(":$(VALKEY_PASSWORD)@valkey.databases.svc:6379", f"{host}:{port}")
    return local.replace(CA_MOUNT, str(authority))


async def succeeds(*arguments: str | Path, environment: dict[str, str]) -> None:
    process = await asyncio.create_subprocess_exec(
        sys.executable, *arguments, env={**os.environ, **environment}, stderr=subprocess.PIPE
    )
    _, errors = await process.communicate()
    assert process.returncode == 0, errors.decode()


async def becomes_ready(service: str, environment: dict[str, str]) -> None:
    """Start a service and run the chart's own health test against it."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    module = f"{service.replace('-', '_')}_service"
    ports = {"PORT": str(port), "INTERNAL_PORT": "0"}
    variables = {**os.environ, **environment, "HOST": "127.0.0.1", **ports}
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", module, env=variables, stdout=subprocess.DEVNULL
    )
    try:
        target = f"grpc shop.{service.title()}Service localhost:{port}"
        client = {"TARGETS": target, "TLS_FOLDER": environment["TLS_FOLDER"]}
        await succeeds(CHART / "files" / "tests" / "health.py", environment=client)
    finally:
        process.terminate()
        await process.wait()


async def test_a_service_migrates_and_serves_with_a_verified_database(
    production: Any, postgres_url: str, authority: Path
) -> None:
    async with postgres_proxy(postgres_url, authority) as port:
        database = conninfo_to_dict(postgres_url)["dbname"]
        environment = variables(
            production, "payment", authority, DATABASE_URL=f"postgresql://postgres@localhost:{port}/{database}"
        )
        assert environment["PGSSLMODE"] == "verify-full"
        await succeeds("-m", "payment_service", "migrate", environment=environment)
        await becomes_ready("payment", environment)


async def test_the_cart_serves_with_a_verified_valkey(production: Any, empty_valkey_url: str, authority: Path) -> None:
    async with valkey_proxy(empty_valkey_url, authority) as port:
        url = rediss_url(production, authority, port)
        assert url.startswith("rediss://localhost:")
        await becomes_ready("cart", variables(production, "cart", authority, REDIS_URL=url))


@pytest.fixture(params=["other authority", "other host name"])
def unverifiable(request: pytest.FixtureRequest, authority: Path, other_authority: Path) -> tuple[str, Path]:
    """Return a host to connect to and an authority to trust, one of which does not fit the server's certificate."""
    return ("localhost", other_authority) if request.param == "other authority" else ("127.0.0.1", authority)


async def test_a_database_with_another_certificate_is_rejected(
    production: Any, postgres_url: str, authority: Path, unverifiable: tuple[str, Path]
) -> None:
    host, trusted = unverifiable
    environment = variables(production, "payment", trusted)
    async with postgres_proxy(postgres_url, authority) as port:
        parameters = urlencode({"sslmode": environment["PGSSLMODE"], "sslrootcert": environment["PGSSLROOTCERT"]})
        url = f"postgresql://postgres@{host}:{port}/postgres?{parameters}"
        with pytest.raises(DatabaseUnusable, match="certificate verify failed|does not match host name"):
            await asyncio.to_thread(stored_revision, url, connect_seconds=0)


async def test_a_valkey_with_another_certificate_is_rejected(
    production: Any, empty_valkey_url: str, authority: Path, unverifiable: tuple[str, Path]
) -> None:
    host, trusted = unverifiable
    async with valkey_proxy(empty_valkey_url, authority) as port:
        client = redis.asyncio.Redis.from_url(rediss_url(production, trusted, port, host))
        with pytest.raises(redis.exceptions.ConnectionError, match="certificate verify failed"):
            await client.ping()
        await client.aclose()
