"""The API as a process: signals, ports, commands, and connections that are interrupted."""

import asyncio
import io
import json
import signal
import socket
import sys
from contextlib import suppress
from pathlib import Path

import httpx2
import pytest
from sqlalchemy import make_url

from chassis.sql.migrate import migrate
from chassis.sql.url import DatabaseUnusable
from employee_api import __main__
from employee_api.database import MIGRATIONS
from shop_cli.local.ports import reserved
from shop_cli.local.processes import Process
from shop_kit.databases import execute
from shop_kit.employee_api import LOCAL, StartApi, serving
from shop_kit.postgres_relay import TransactionPooler
from shop_kit.running_shop import running_process
from shop_kit.waiting import wait_for_result, wait_until

ROWS = 5_000  # of 4 kB: more than the buffers between the process and its client hold


def insert_tasks(url: str) -> None:
    execute(
        url,
        f"WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {ROWS}) INSERT INTO tasks "  # noqa: S608 - a constant
        "SELECT printf('%032x', i), 'Task ' || i, hex(zeroblob(2000)), 'todo', 'low', NULL, NULL, NULL, "
        "'2026-01-01 00:00:00.000000', '2026-01-01 00:00:00.000000' FROM n",
    )


def client_of(process: Process) -> httpx2.AsyncClient:
    return httpx2.AsyncClient(base_url=f"http://{process.address}", timeout=None)


async def test_with_default_settings_it_warns_serves_from_sqlite_and_exits_with_0_on_sigterm(tmp_path: Path) -> None:
    async with running_process("employee-api", tmp_path) as served, client_of(served) as client:
        lines = map(json.loads, served.log_path.read_text().splitlines())
        warnings = [line["event"] for line in lines if line["level"] == "warning"]
        assert warnings == ["AUTH_MODE is off: every client has full access"]
        assert (await client.get("/api/auth/users")).json() == []
        rebound = await client.get("/api/auth/users", headers={"host": "rebound.example"})
        assert (rebound.status_code, rebound.json()) == (421, {"error": "This host is not served here"})
        assert (tmp_path / ".shop" / "employee-api.db").exists()
    assert served.exit_code == 0


async def test_an_active_export_is_completed_before_the_process_exits(sqlite_url: str, tmp_path: Path) -> None:
    insert_tasks(sqlite_url)

    async def is_refused() -> bool:
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", served.port)
        except ConnectionError:  # refused, or reset by the socket that closes
            return True
        writer.close()
        return False

    async with (
        running_process("employee-api", tmp_path, DATABASE_URL=sqlite_url) as served,
        client_of(served) as client,
    ):
        async with client.stream("GET", "/api/export/tasks") as response:
            parts = response.aiter_bytes()
            content = await anext(parts)
            served.send(signal.SIGTERM)
            await wait_until(is_refused)
            content += b"".join([part async for part in parts])
        assert content.count(b"\r\n") == ROWS + 1
        assert await served.wait() == 0


async def test_exports_end_when_they_fail_and_when_their_clients_disconnect(sqlite_url: str, tmp_path: Path) -> None:
    insert_tasks(sqlite_url)
    async with running_process("employee-api", tmp_path, DATABASE_URL=sqlite_url) as served:
        for _ in range(12):  # more than the limit
            async with client_of(served) as client, client.stream("GET", "/api/export/tasks") as response:
                await anext(response.aiter_bytes())
        async with client_of(served) as client:
            await wait_for_result(lambda: client.get("/api/export/users"), lambda found: found.status_code == 200)
            # Reading the last row fails, because its title is not valid UTF-8.
            execute(sqlite_url, f"UPDATE tasks SET title = CAST(x'ff' AS TEXT) WHERE id = printf('%032x', {ROWS})")  # noqa: S608
            async with client.stream("GET", "/api/export/tasks") as response:
                assert response.status_code == 200
                with pytest.raises(httpx2.RemoteProtocolError):
                    await response.aread()
            assert (await client.get("/healthz")).status_code == 200


def test_a_database_that_cannot_be_used_ends_the_start_with_one_line(tmp_path: Path, postgres_process: str) -> None:
    nowhere = make_url(postgres_process).set(database="nowhere").render_as_string(hide_password=False)
    for url, reason in (
        ("postgresql://ada:hunter2@127.0.0.1:1/staff", "Connection refused"),
        ("sqlite:////proc/employee-api.db", "can't write"),  # a user lacks the right; for root the file is refused
        (f"sqlite:///{tmp_path}", "can't write"),
        (nowhere, 'database "nowhere" does not exist'),
    ):
        with pytest.raises(DatabaseUnusable) as ended:
            migrate(url, MIGRATIONS, connect_seconds=0)
        [line] = str(ended.value).splitlines()
        assert line.startswith("DATABASE_URL: ")
        assert reason in line
        assert "hunt" not in line


async def start(url: str, *arguments: str) -> asyncio.subprocess.Process:
    command, pipe = [sys.executable, "-m", "employee_api", *arguments], asyncio.subprocess.PIPE
    return await asyncio.create_subprocess_exec(*command, env={"DATABASE_URL": url}, stdout=pipe, stderr=pipe)


async def test_a_migration_waits_for_a_server_that_starts_later(postgres_url: str) -> None:
    with reserved(1) as (port,):
        relay = TransactionPooler(postgres_url, port)
        process = await start(relay.url(), "migrate")
        try:
            assert process.stderr is not None
            assert (await process.stderr.readline()).startswith(b"waiting for PostgreSQL: DATABASE_URL: ")
            async with relay:
                assert await process.wait() == 0
        finally:
            with suppress(ProcessLookupError):
                process.kill()


@pytest.mark.parametrize("given", [("postgresql://ada:hunter2@127.0.0.1:1/staff",), ("sqlite:////proc/x", "migrate")])
async def test_the_start_ends_with_one_line_on_stderr_and_a_status(given: tuple[str, ...]) -> None:
    process = await start(*given)
    output, errors = await process.communicate()
    assert (process.returncode, len(errors.splitlines())) == (1, 1)
    assert errors.startswith(b"DATABASE_URL: ")
    assert b"hunt" not in output + errors


async def test_an_address_that_is_not_free_ends_the_start_with_one_line(start_api: StartApi) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        for host, used, text in (
            ("127.0.0.1", port, f"PORT: can't listen on 127.0.0.1:{port}: Address already in use"),
            ("192.0.2.1", 8000, "HOST: can't listen on 192.0.2.1:8000: Cannot assign requested address"),
        ):
            with pytest.raises(OSError, match=text):
                await serving(start_api(**LOCAL | {"host": host, "port": used})).__aenter__()


@pytest.fixture
def add_user(sqlite_url: str, monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """Prepare the command `add-user` for Ada with the password `long secret!`, and settings from the environment."""
    monkeypatch.setenv("DATABASE_URL", sqlite_url)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"long secret!\n")))
    monkeypatch.setattr(sys, "argv", ["employee_api", "add-user", "--name=Ada", "--email=ada@x", "--role=ceo"])
    return monkeypatch


async def test_add_user_adds_a_first_management_user_once(
    add_user: pytest.MonkeyPatch, start_api: StartApi, capsys: pytest.CaptureFixture[str]
) -> None:
    await asyncio.to_thread(__main__.main)
    assert "secret" not in "".join(capsys.readouterr())
    async with start_api(auth_mode="enforce") as api:
        response = await api.client.post("/api/auth/login", json={"email": "ada@x", "password": "long secret!"})
        assert (response.status_code, response.json()["role"]) == (200, "ceo")
    add_user.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"long secret!\n")))
    with pytest.raises(SystemExit, match="^Email already registered$"):
        await asyncio.to_thread(__main__.main)


@pytest.mark.parametrize(
    ("role", "message"), [("\udcff", "role is invalid"), ("ceo", "Password must have at least 12 characters")]
)
def test_add_user_has_the_rules_of_enforcement(add_user: pytest.MonkeyPatch, role: str, message: str) -> None:
    add_user.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"short\n")))
    add_user.setattr(sys, "argv", [*sys.argv, f"--role={role}"])
    with pytest.raises(SystemExit, match=f"^{message}$"):
        __main__.main()
