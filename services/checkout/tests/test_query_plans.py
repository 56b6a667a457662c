"""No statement of the journal reads a whole table of a million orders.

SQLite plans without statistics, which the journal never collects, as if a table had a million rows. PostgreSQL gets a
hundred thousand orders and the statistics of a million; its tables then seem ten times easier to scan than they are.
"""

import asyncio
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeAlias

import pytest

from chassis.sql.database import listed
from chassis.sql.opening import open_database
from checkout_service.domain import State
from checkout_service.journal import statements
from checkout_service.journal.opening import MIGRATIONS
from checkout_service.ports import JournalUnavailable
from shop_kit.databases import Templates, execute, plan_on_sqlite

Explain: TypeAlias = Callable[[str], list[dict[str, Any]]]

ORDERS = 100_000
TABLES = {"orders", "order_events", "outbox"}
PARAMETERS: dict[str, Any] = {
    **dict.fromkeys(("order_id", "scope", "fingerprint", "user_id", "email", "cart_etag", "currency_code"), "7"),
    **dict.fromkeys(("worker", "owner", "new_owner", "traceparent", "reason", "refusal", "step", "accepted"), "x"),
    **dict.fromkeys(("transaction_id", "tracking_id"), "x"),
    **dict.fromkeys(("attempt", "epoch", "total_units", "total_nanos", "failures", "new_attempt", "new_epoch"), 1),
    **dict.fromkeys(("lease_seconds", "recovery_lease_seconds", "outbox_lease_seconds", "delay_seconds"), 30.0),
    **dict.fromkeys(("max_ahead_seconds", "stuck_seconds", "older_than", "replica_seconds"), 60.0),
    "snapshot": b"{}",
    "state": State.CHARGING.value,
    "before": State.CHARGING.value,
    "after": State.SHIPPED.value,
    "kind": "email",
    "protocol": 1,
    "at": 1_790_000_000.0,
    "key": "7",
    "limit": 50,
    "passed": 0,
    "items": listed([{"order_id": "7", "kind": "email", "state": "CHARGING", "step": "x", "place": 0}]),
}
COUNT_OF_THE_BACKLOG = "COUNT_OUTBOX"
"""Counts all rows of a table that is as long as the backlog."""
IN_ORDER = dict.fromkeys(("LIST", "LIST_DONE"), "ix_orders_created_at")
"""Read the first rows of an index and stop at their limit."""
CLAIMS = {
    f"{name} {failed} {claim}": (getattr(queue, claim), "lease_until" if name in State.__members__ else "due_at")
    for (name, failed), queue in statements.QUEUES.items()
    for claim in ("correct", "claim")
}
NAME = re.compile("(?!NOW)[A-Z][A-Z_]+")
TEXTS: dict[str, str] = {
    **{name: text for name, text in vars(statements).items() if NAME.fullmatch(name) and isinstance(text, str)},
    **{name: text for name, (text, _) in CLAIMS.items()},
}
BY_TIME = {name: column for name, (_, column) in CLAIMS.items()} | dict.fromkeys(("COUNT_FUTURE", "OLD"), "created_at")
"""Statements that read only what is due, out of many that are not, and the column that an index finds it by."""


@pytest.fixture(scope="module")
def sqlite_plan(tmp_path_factory: pytest.TempPathFactory, templates: Templates) -> Callable[[str], list[str]]:
    """Return the steps of a statement's plan on SQLite."""
    url = templates.copy_file(MIGRATIONS, tmp_path_factory.mktemp("plans") / "journal.db")
    return lambda text: plan_on_sqlite(url, text, PARAMETERS)


@pytest.mark.parametrize("name", sorted(TEXTS.keys() - {COUNT_OF_THE_BACKLOG}))
def test_sqlite_finds_rows_by_an_index(sqlite_plan: Callable[[str], list[str]], name: str) -> None:
    plan, column = sqlite_plan(TEXTS[name]), BY_TIME.get(name, "")
    scans = [step for step in plan if step.startswith("SCAN") and step.split()[1] in TABLES]
    assert [step for step in scans if not reads_few(name, step.rpartition("INDEX ")[2])] == []
    assert not column or [step for step in plan if step.startswith("SEARCH") and re.search(f"{column}[<>]", step)]


def reads_few(name: str, index: str) -> bool:
    """Return whether a scan of an index stops early, or reads unfinished work only."""
    return index in {"ix_orders_active", "ix_outbox_dead"} or IN_ORDER.get(name) == index


@pytest.fixture(scope="module")
def postgres_plan(postgres_process: str, templates: Templates) -> Iterator[Explain]:
    """Return the nodes of a statement's plan on PostgreSQL."""
    with templates.copy_database(postgres_process, MIGRATIONS) as url:
        yield from explaining(url, fill(ORDERS, snapshot="''") + STATISTICS)


@pytest.fixture(scope="module")
def new_postgres_plan(postgres_process: str, templates: Templates) -> Iterator[Explain]:
    """Return the nodes of a statement's plan on PostgreSQL after the first orders, before it has statistics."""
    with templates.copy_database(postgres_process, MIGRATIONS) as url:
        yield from explaining(url, fill(FIRST_ORDERS, snapshot=SNAPSHOT))


def explaining(url: str, statements_before: Sequence[str]) -> Iterator[Explain]:
    """Run statements on a database; yield what explains a statement there."""
    for statement in statements_before:
        execute(url, statement)
    with asyncio.Runner() as runner:
        yield lambda text: runner.run(explain(url, text))


async def explain(url: str, text: str) -> list[dict[str, Any]]:
    async with open_database(url, unavailable=JournalUnavailable) as connections:
        (row,) = await connections.read(f"EXPLAIN (FORMAT JSON) {text}", PARAMETERS)
        return list(nodes(row["QUERY PLAN"][0]["Plan"]))


def nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield plan
    for child in plan.get("Plans", []):
        yield from nodes(child)


STATES = "(ARRAY['CHARGING','SHIPPED','VOIDED','DECLINED','ABANDONED'])"
FIRST_ORDERS = 500
SNAPSHOT = "repeat(md5(n::text), 30)"
"""SQL of about as many bytes as a snapshot has."""


def fill(orders: int, *, snapshot: str) -> list[str]:
    """Return the statements that write orders, each with two events and two outbox items, without statistics."""
    return [
        *(f"ALTER TABLE {table} SET (autovacuum_enabled = false)" for table in TABLES),
        f"""
        INSERT INTO orders (
            order_id, scope, fingerprint, user_id, email, cart_etag, currency_code, total_units, total_nanos, state,
            attempt, epoch, worker, lease_until, failures, reason, refusal, transaction_id, tracking_id, traceparent,
            created_at, updated_at, snapshot
        ) SELECT
            md5(n::text), md5(n::text), md5(n::text), n, 'a@b.example', n, 'EUR', 1, 0,
            CASE WHEN n % 100 = 0 THEN {STATES}[n / 100 % 5 + 1] ELSE 'DONE' END,
            1, 1, 'one', n, n / 100 % 2, '', '', '', '', '', n, n, CAST({snapshot} AS BYTEA)
        FROM generate_series(1, {orders}) AS n
        """,  # noqa: S608 - constants
        f"""
        INSERT INTO order_events SELECT md5(n::text), 1, step, n, 'DONE', 1, ''
        FROM generate_series(1, {orders}) AS n CROSS JOIN (VALUES ('inserted'), ('done')) AS steps(step)
        """,  # noqa: S608 - constants
        f"""
        INSERT INTO outbox SELECT md5(n::text), kind, n, n % 2, '', CASE WHEN n % 100 = 0 THEN n END
        FROM generate_series(1, {orders}) AS n CROSS JOIN (VALUES ('email'), ('empty_cart')) AS kinds(kind)
        """,  # noqa: S608 - constants
    ]


STATISTICS = [
    "ANALYZE orders, order_events, outbox",
    """
    UPDATE pg_class SET reltuples = reltuples * 10
    WHERE oid IN (SELECT indexrelid FROM pg_index UNION SELECT indrelid FROM pg_index) AND relname ~ 'order|outbox'
    """,
]


@pytest.mark.parametrize("name", sorted(TEXTS.keys() - {COUNT_OF_THE_BACKLOG}))
def test_postgresql_finds_rows_by_an_index(postgres_plan: Explain, name: str) -> None:
    reads = [node for node in postgres_plan(TEXTS[name]) if "Scan" in node["Node Type"]]
    of_tables = [node for node in reads if node.get("Relation Name") in TABLES]
    scans = [node for node in of_tables if not {"Index Cond", "Recheck Cond", "TID Cond"} & node.keys()]
    assert [node for node in scans if not reads_few(name, node.get("Index Name", ""))] == []
    assert name not in BY_TIME or [node for node in reads if BY_TIME[name] in node.get("Index Cond", "")]


def test_the_oldest_notification_is_found_without_sorting(
    sqlite_plan: Callable[[str], list[str]], postgres_plan: Explain
) -> None:
    text = TEXTS["OLDEST_NOTIFICATION"]
    assert not [step for step in sqlite_plan(text) if "TEMP B-TREE" in step]
    types = {node["Node Type"] for node in postgres_plan(text)}
    assert types & {"Sort", "Hash", "Materialize"} == set()


@pytest.mark.parametrize("name", ["LOCK_ORDERS", "SENT_EVENTS", "SET_DONE", "DONE_EVENTS"])
def test_postgresql_completes_the_first_orders_by_their_keys(new_postgres_plan: Explain, name: str) -> None:
    """A plan that reads the whole table would be kept for a minute, while the table grows."""
    reads = [node for node in new_postgres_plan(TEXTS[name]) if node.get("Relation Name") == "orders"]
    assert [node["Node Type"] for node in reads if node["Node Type"] == "Seq Scan"] == []
