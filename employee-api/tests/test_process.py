"""The process as it is run: signals, ports, commands, and connections that end badly."""

import json
import os
import signal
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

ENVIRONMENT = {"PATH": os.environ["PATH"], "HOST": "127.0.0.1", "PORT": "0", "DRAIN_SECONDS": "0"}


class Process:
    """`python -m employee_api`, once it serves."""

    def __init__(self, running: subprocess.Popen[str], before_serving: list[dict[str, Any]], port: int) -> None:
        self.running = running
        self.before_serving = before_serving
        self.url = f"http://127.0.0.1:{port}"

    def stop(self) -> int:
        """Send SIGTERM; the exit status."""
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
            before: list[dict[str, Any]] = []
            for line in lines:
                before.append(line)
                if line["event"] == "serving":
                    break
            rest = Thread(target=list, args=[lines])  # a full pipe would stop the process
            rest.start()
            yield Process(running, before, before[-1]["port"])
        finally:
            running.kill()
            if rest is not None:
                rest.join()  # to the pipe's end: it is closed next


def run(folder: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "employee_api", *arguments],
        cwd=folder,
        env=ENVIRONMENT | environment,
        input="secret\n",
        text=True,
        capture_output=True,
        timeout=60,
        check=False,
    )


def fill(folder: Path, count: int) -> None:
    with sqlite3.connect(folder / ".shop" / "employee-api.db") as connection:
        connection.execute(
            "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?) INSERT INTO tasks "
            "SELECT printf('%032x', i), 'Task ' || i, hex(zeroblob(200)), 'todo', 'low', NULL, NULL, NULL, "
            "'2026-01-01 00:00:00.000000', '2026-01-01 00:00:00.000000' FROM n",
            [count],
        )
    connection.close()


def wait_until_refused(url: str) -> None:
    """No new connection is taken any more."""
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        try:
            httpx2.get(f"{url}/healthz")
        except httpx2.TransportError:
            return
    pytest.fail("it goes on taking connections")


def test_it_warns_of_no_policy_serves_on_a_file_of_its_own_and_ends_with_0_on_sigterm(tmp_path: Path) -> None:
    with serving(tmp_path) as process:
        warnings = [line["event"] for line in process.before_serving if line["level"] == "warning"]
        assert warnings == ["AUTH_MODE is off: everybody who reaches this API may do everything"]
        assert httpx2.get(f"{process.url}/api/auth/users").json() == []
        assert (tmp_path / ".shop" / "employee-api.db").exists()
        assert process.stop() == 0


def test_an_export_under_way_is_finished_before_it_ends(tmp_path: Path) -> None:
    with serving(tmp_path) as process:
        fill(tmp_path, 40_000)
        with httpx2.stream("GET", f"{process.url}/api/export/tasks", timeout=60) as answer:
            parts = answer.iter_bytes()
            content = next(parts)
            process.running.send_signal(signal.SIGTERM)
            wait_until_refused(process.url)
            content += b"".join(parts)
        assert content.count(b"\r\n") == 40_001
        assert process.running.wait(30) == 0


def test_a_failure_in_the_middle_of_an_export_ends_the_connection_without_its_end(tmp_path: Path) -> None:
    with serving(tmp_path) as process:
        fill(tmp_path, 40_000)
        with sqlite3.connect(tmp_path / ".shop" / "employee-api.db") as connection:
            # The last row's status holds bytes that are no text, which can't be read as such.
            connection.execute("UPDATE tasks SET title = CAST(x'ff' AS TEXT) WHERE id = printf('%032x', 40000)")
        connection.close()
        with httpx2.stream("GET", f"{process.url}/api/export/tasks", timeout=60) as answer:
            assert answer.status_code == 200
            with pytest.raises(httpx2.RemoteProtocolError):
                answer.read()
        assert httpx2.get(f"{process.url}/healthz").status_code == 200


def test_a_caller_who_goes_away_leaves_no_export_behind(tmp_path: Path) -> None:
    with serving(tmp_path) as process:
        fill(tmp_path, 20_000)
        for _ in range(12):  # more than may run at once
            with httpx2.stream("GET", f"{process.url}/api/export/tasks", timeout=60) as answer:
                next(answer.iter_bytes())
        deadline = time.monotonic() + 30
        while httpx2.get(f"{process.url}/api/export/users").status_code == 429:
            assert time.monotonic() < deadline


def test_migrate_ends_with_0_and_has_made_the_tables(tmp_path: Path) -> None:
    assert run(tmp_path, "migrate").returncode == 0
    assert (tmp_path / ".shop" / "employee-api.db").stat().st_size > 0


def test_a_leader_can_be_added_where_nobody_may_add_one(tmp_path: Path) -> None:
    added = run(tmp_path, "add-user", "--name", "Ada", "--email", "ada@x", "--role", "ceo")
    assert (added.returncode, "secret" in added.stdout + added.stderr) == (0, False)
    with serving(tmp_path, AUTH_MODE="enforce") as process:
        answer = httpx2.post(f"{process.url}/api/auth/login", json={"email": "ada@x", "password": "secret"})
    assert (answer.status_code, answer.json()["role"]) == (200, "ceo")


def test_an_email_can_be_added_once(tmp_path: Path) -> None:
    adding = ("add-user", "--name", "Ada", "--email", "ada@x", "--role", "ceo")
    run(tmp_path, *adding)
    again = run(tmp_path, *adding)
    assert (again.returncode, again.stderr) == (1, "Email already registered\n")


def test_bad_settings_stop_the_start_with_their_names(tmp_path: Path) -> None:
    ended = run(tmp_path, AUTH_MODE="perhaps", PORT="70000", SESSION_IDLE_SECONDS="-1")
    assert ended.returncode == 2
    assert {line.partition(":")[0] for line in ended.stderr.splitlines()} == {
        "AUTH_MODE",
        "PORT",
        "SESSION_IDLE_SECONDS",
    }


def test_a_port_in_use_is_told_in_a_line(tmp_path: Path) -> None:
    with serving(tmp_path) as process:
        port = process.url.rpartition(":")[2]
        ended = run(tmp_path, PORT=port)
    assert ended.returncode == 1
    assert f"can't listen on 127.0.0.1:{port}" in ended.stderr
