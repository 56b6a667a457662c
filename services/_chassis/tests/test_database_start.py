import socket
import threading
from contextlib import suppress
from pathlib import Path

import psycopg

from chassis.sql.migrate import migrate

MIGRATION = """
from alembic import op

revision = "1"
down_revision = None


def upgrade() -> None:
    op.execute("CREATE TABLE orders (id int)")
"""


def forward(source: socket.socket, target: socket.socket) -> None:
    with source, target, suppress(ConnectionError):  # an end that closes may leave the last message of the other unread
        while data := source.recv(65_536):
            target.sendall(data)
        target.shutdown(socket.SHUT_WR)


def connect_to(host: str, port: int) -> socket.socket:
    if not host.startswith("/"):
        return socket.create_connection((host, port))
    connected = socket.socket(socket.AF_UNIX)
    connected.connect(f"{host}/.s.PGSQL.{port}")
    return connected


def relay_after_one_refusal(listener: socket.socket, host: str, port: int, refusals: list[None]) -> None:
    """Close the first connection, as a server that is starting does; relay the later ones."""
    listener.accept()[0].close()
    refusals.append(None)
    while True:
        try:
            client = listener.accept()[0]
        except OSError:
            return
        upstream = connect_to(host, port)
        for source, target in ((client, upstream), (upstream, client)):
            threading.Thread(target=forward, args=(source.dup(), target.dup()), daemon=True).start()
        client.close()
        upstream.close()


def test_migrating_waits_for_a_database_that_is_starting(postgres_url: str, tmp_path: Path) -> None:
    versions = tmp_path / "versions"
    versions.mkdir()
    (versions / "0001_orders.py").write_text(MIGRATION)
    server = psycopg.conninfo.conninfo_to_dict(postgres_url)
    refusals: list[None] = []
    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(
            target=relay_after_one_refusal,
            args=(listener, str(server["host"]), int(server.get("port") or 5432), refusals),
            daemon=True,
        ).start()
        login = f"{server.get('user', 'postgres')}:{server.get('password', '')}"
        url = f"postgresql://{login}@127.0.0.1:{listener.getsockname()[1]}/{server['dbname']}"
        migrate(url, tmp_path)
        listener.shutdown(socket.SHUT_RDWR)
    with psycopg.connect(postgres_url) as connection:
        assert connection.execute("SELECT count(*) FROM orders").fetchone() == (0,)
    assert refusals
