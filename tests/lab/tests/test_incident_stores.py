"""Faults of stores on a cluster, by the clients that their pods have, of PostgreSQL and Valkey on this machine."""

import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from psycopg.conninfo import conninfo_to_dict
from typing_extensions import override

from shop_cli.local.postgres import PROGRAMS
from shop_kit.waiting import wait_until
from shop_lab.incidents import injector
from shop_lab.incidents.catalogue import Fault, find
from shop_lab.incidents.cluster import Cluster
from shop_lab.incidents.state import Record
from shop_lab.incidents.targets import CannotAct

CLIENT = """#!{python}
import sys, redis
try:
    found = redis.Redis.from_url({url!r}, decode_responses=True, protocol=2).execute_command(*sys.argv[2:])
except redis.ResponseError as error:
    found = f"ERR {{error}}"
print(*found if isinstance(found, list) else [found], sep="\\n")
"""


class StoreCluster(Cluster):
    """A cluster without records whose pods are this machine: what it executes in them runs here."""

    @override
    def kubectl(self, *arguments: str, stdin: str | None = None) -> str:
        command = arguments[arguments.index("--") + 1 :]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise CannotAct(done.stderr)
        return done.stdout

    @override
    def require_laboratory(self) -> None: ...

    @override
    def records(self) -> list[Record]:
        return []

    @override
    def save(self, record: Record) -> None: ...

    @override
    def forget(self, record: Record) -> None: ...


@pytest.fixture
def cluster(postgres_url: str, valkey_process: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> StoreCluster:
    (client := tmp_path / "valkey-cli").write_text(CLIENT.format(python=sys.executable, url=valkey_process))
    client.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{PROGRAMS}:{os.environ['PATH']}")
    for name, value in conninfo_to_dict(postgres_url).items():
        monkeypatch.setenv(f"PG{name.upper().replace('DBNAME', 'DATABASE')}", str(value))
    return StoreCluster("shop", "shop")


def fault(**injection: Any) -> Fault:
    injections = [{"mechanism": "store", **injection}]
    return Fault.model_validate({**find("pg-lock").model_dump(), "injections": injections})


def running(token: str) -> bool:
    found = False
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):  # it has ended
            found |= token.encode() in path.read_bytes()
    return found


@pytest.mark.parametrize(
    ("store", "save", "setting"),
    [
        (
            "postgresql",
            "SELECT datconnlimit FROM pg_database WHERE datname = 'template0'",
            "ALTER DATABASE template0 CONNECTION LIMIT",
        ),
        ("valkey", "CONFIG GET maxmemory", "CONFIG SET maxmemory"),
    ],
)
async def test_a_setting_of_a_store_is_set_back_by_a_command_or_when_its_time_is_over(
    cluster: StoreCluster, store: str, save: str, setting: str
) -> None:
    changed = fault(store=store, save=save, apply=[f"{setting} 9000000"], restore=[f"{setting} {{saved}}"])
    before = cluster.query(store, "postgres", save)
    record = injector.start(changed, cluster, 600)
    assert cluster.query(store, "postgres", save) == "9000000"
    injector.undo(record, cluster)
    assert cluster.query(store, "postgres", save) == before
    await wait_until(lambda: not running(record.token))
    cluster.query(store, "postgres", f"{setting} 9000000")
    cluster.background(store, "postgres", ["1", f"{setting} {before}"], "token")
    await wait_until(lambda: cluster.query(store, "postgres", save) == before)


async def test_a_transaction_holds_its_lock_until_it_is_ended(cluster: StoreCluster) -> None:
    database, locks = os.environ["PGDATABASE"], "SELECT count(*) FROM pg_locks WHERE mode = 'AccessExclusiveLock'"
    cluster.query("postgresql", database, "CREATE TABLE charges ()")
    held = fault(store="postgresql", database=database, hold=["LOCK TABLE charges IN ACCESS EXCLUSIVE MODE"])
    record = injector.start(held, cluster, 600)
    await wait_until(lambda: cluster.query("postgresql", database, locks) != "0")
    injector.undo(record, cluster)
    await wait_until(lambda: cluster.query("postgresql", database, locks) == "0")


@pytest.mark.parametrize(("store", "message"), [("postgresql", "does not exist"), ("valkey", "valkey: ERR")])
def test_a_store_that_refuses_a_statement_is_named(cluster: StoreCluster, store: str, message: str) -> None:
    with pytest.raises(CannotAct, match=message):
        cluster.query(store, "nowhere", "NOTHING")
