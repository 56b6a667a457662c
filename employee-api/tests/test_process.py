"""The API as a process: signals, ports, commands, and connections that are interrupted."""

import json
import os
import re
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Thread
from typing import IO, Any

import httpx2
import pytest
from sqlalchemy import make_url

ENVIRONMENT = {"PATH": os.environ["PATH"], "HOST": "127.0.0.1", "PORT": "0", "DRAIN_SECONDS": "0"}


class Process:
    """A serving `python -m employee_api`, with the log lines up to `serving`."""

    def __init__(self, running: subprocess.Popen[str], start_log: list[dict[str, Any]], port: int) -> None:
        self.running = running
        self.start_log = start_log
        self.url = f"http://127.0.0.1:{port}"

    def stop(self) -> int:
        """Send SIGTERM and return the exit status."""
        self.running.send_signal(signal.SIGTERM)
        return self.running.wait(30)


def events(stream: IO[str]) -> Iterator[dict[str, Any]]:
    for line in stream:
        yield json.loads(line)


@contextmanager
def serving(folder: Path, **environment: str) -> Iterator[Process]:
    command = [sys.executable, "-m", "employee_api"]
    with subprocess.Popen(
        command, cwd=folder, env=ENVIRONMENT | environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as running:
        rest: Thread | None = None
        try:
            assert running.stdout
            lines = events(running.stdout)
            start_log: list[dict[str, Any]] = []
            for line in lines:
                start_log.append(line)
                if line["event"] == "serving":
                    break
            rest = Thread(target=list, args=[lines])  # a full pipe would block the process
            rest.start()
            yield Process(running, start_log, start_log[-1]["port"])
        finally:
            running.kill()
            if rest is not None:
                rest.join()  # until the end of the pipe, which is closed next


def run(folder: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "employee_api", *arguments],
        cwd=folder,
        env=ENVIRONMENT | environment,
        input="secret\n",
        text=True,
        capture_output=True,
        timeout=25,  # less than the services of the shop wait for their database
        check=False,
    )


@pytest.fixture
def migrated_folder(tmp_path: Path, migrated_sqlite: Path) -> Path:
    """A folder with a migrated database, which takes a process most of a second to make."""
    (tmp_path / ".shop").mkdir()
    shutil.copy(migrated_sqlite, tmp_path / ".shop" / "employee-api.db")
    return tmp_path


def insert_tasks(folder: Path, count: int) -> None:
    with sqlite3.connect(folder / ".shop" / "employee-api.db") as connection:
        connection.execute(
            "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?) INSERT INTO tasks "
            "SELECT printf('%032x', i), 'Task ' || i, hex(zeroblob(200)), 'todo', 'low', NULL, NULL, NULL, "
            "'2026-01-01 00:00:00.000000', '2026-01-01 00:00:00.000000' FROM n",
            [count],
        )
    connection.close()


def wait_until_refused(url: str) -> None:
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        try:
            httpx2.get(f"{url}/healthz")
        except httpx2.TransportError:
            return
    pytest.fail("new connections are still accepted")


def test_with_default_settings_it_warns_serves_from_sqlite_and_exits_with_0_on_sigterm(tmp_path: Path) -> None:
    with serving(tmp_path) as process:
        warnings = [line["event"] for line in process.start_log if line["level"] == "warning"]
        assert warnings == ["AUTH_MODE is off: every client has full access"]
        assert httpx2.get(f"{process.url}/api/auth/users").json() == []
        rebound = httpx2.get(f"{process.url}/api/auth/users", headers={"host": "rebound.example"})
        assert (rebound.status_code, rebound.json()) == (421, {"error": "This host is not served here"})
        assert (tmp_path / ".shop" / "employee-api.db").exists()
        assert process.stop() == 0


def test_an_active_export_is_completed_before_the_process_exits(migrated_folder: Path) -> None:
    with serving(migrated_folder) as process:
        insert_tasks(migrated_folder, 40_000)
        with httpx2.stream("GET", f"{process.url}/api/export/tasks", timeout=60) as response:
            parts = response.iter_bytes()
            content = next(parts)
            process.running.send_signal(signal.SIGTERM)
            wait_until_refused(process.url)
            content += b"".join(parts)
        assert content.count(b"\r\n") == 40_001
        assert process.running.wait(30) == 0


def test_exports_end_when_they_fail_and_when_their_clients_disconnect(migrated_folder: Path) -> None:
    with serving(migrated_folder) as process:
        insert_tasks(migrated_folder, 40_000)
        for _ in range(12):  # more than the limit
            with httpx2.stream("GET", f"{process.url}/api/export/tasks", timeout=60) as response:
                next(response.iter_bytes())
        deadline = time.monotonic() + 30
        while httpx2.get(f"{process.url}/api/export/users").status_code == 429:
            assert time.monotonic() < deadline
        with sqlite3.connect(migrated_folder / ".shop" / "employee-api.db") as connection:
            # Reading the last row fails, because its title is not valid UTF-8.
            connection.execute("UPDATE tasks SET title = CAST(x'ff' AS TEXT) WHERE id = printf('%032x', 40000)")
        connection.close()
        with httpx2.stream("GET", f"{process.url}/api/export/tasks", timeout=60) as response:
            assert response.status_code == 200
            with pytest.raises(httpx2.RemoteProtocolError):
                response.read()
        assert httpx2.get(f"{process.url}/healthz").status_code == 200


def test_add_user_adds_a_first_management_user_once(tmp_path: Path) -> None:
    assert run(tmp_path, "migrate").returncode == 0
    assert (tmp_path / ".shop" / "employee-api.db").stat().st_size > 0
    arguments = ("add-user", "--name", "Ada", "--email", "ada@x", "--role", "ceo")
    added = run(tmp_path, *arguments)
    assert (added.returncode, "secret" in added.stdout + added.stderr) == (0, False)
    with serving(tmp_path, AUTH_MODE="enforce") as process:
        response = httpx2.post(f"{process.url}/api/auth/login", json={"email": "ada@x", "password": "secret"})
    assert (response.status_code, response.json()["role"]) == (200, "ceo")
    again = run(tmp_path, *arguments)
    assert (again.returncode, again.stderr) == (1, "Email already registered\n")


@pytest.mark.parametrize(
    ("role", "message"), [("\udcff", "role is invalid"), ("ceo", "Password must have at least 12 characters")]
)
def test_add_user_has_the_rules_of_the_api(migrated_folder: Path, role: str, message: str) -> None:
    ended = run(migrated_folder, "add-user", "--name=Ada", "--email=ada@x", f"--role={role}", AUTH_MODE="enforce")
    assert (ended.returncode, ended.stderr) == (1, f"{message}\n")


def test_invalid_settings_end_the_start_and_are_named_in_a_line(tmp_path: Path) -> None:
    file = tmp_path / "breached.txt"
    file.write_bytes(b"b\na\n")
    invalid = {"AUTH_MODE": "perhaps", "PORT": "70000", "BREACHED_PASSWORDS_FILE": str(file)}
    ended = run(tmp_path, **invalid)
    assert ended.returncode == 2
    assert {line.partition(":")[0] for line in ended.stderr.splitlines()} == set(invalid)


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("postgresql://ada:hunter2@127.0.0.1:1/staff", "Connection refused"),
        ("sqlite:////proc/employee-api.db", "can't write"),  # a user lacks the right; for root the file is refused
        ("sqlite:///{folder}", "can't write"),
    ],
)
def test_a_database_that_cannot_be_used_ends_the_start_with_one_line(url: str, reason: str, tmp_path: Path) -> None:
    command = ["migrate"] if "Connection" in reason else []
    ended = run(tmp_path, *command, DATABASE_URL=url.format(folder=tmp_path))
    [line] = ended.stderr.splitlines()
    assert ended.returncode in (1, 2)
    assert line.startswith("DATABASE_URL: ")
    assert reason in line
    assert "hunt" not in ended.stderr + ended.stdout


def test_an_unknown_database_ends_the_start_with_one_line(tmp_path: Path, postgres_process: str) -> None:
    url = make_url(postgres_process).set(database="nowhere").render_as_string(hide_password=False)
    ended = run(tmp_path, DATABASE_URL=url)
    [line] = ended.stderr.splitlines()
    assert ended.returncode == 1
    assert re.match(r'DATABASE_URL: .*database "nowhere" does not exist', line)


def test_an_address_that_is_not_free_ends_the_start_with_one_line(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        used = run(tmp_path, PORT=str(port))
    assert (used.returncode, used.stderr) == (1, f"PORT: can't listen on 127.0.0.1:{port}: Address already in use\n")
    other = run(tmp_path, HOST="192.0.2.1", PORT="8000")
    text = "HOST: can't listen on 192.0.2.1:8000: Cannot assign requested address\n"
    assert (other.returncode, other.stderr) == (1, text)
