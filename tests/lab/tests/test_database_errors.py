"""Every statement of every store fails in turn, on both databases: callers get the store's error, and no other."""

from collections.abc import Callable, Coroutine, Iterator
from contextlib import suppress
from functools import partial
from types import ModuleType
from typing import Any

import pytest
import redis.asyncio
import redis.exceptions
from sqlalchemy import event

from cart_service.domain import Addition, CartStore, NewQuantity, Purchase, StoreUnavailable
from cart_service.valkey import open_valkey_store
from chassis.errors import Unavailable
from chassis.sql.migrate import migrate
from chassis.values.addresses import Address
from chassis.values.money import Money
from chassis.values.paging import Position
from checkout_service.domain import Order, OrderLine, Refusal, State, Transition, order_id_of
from checkout_service.journal import sql as journal_sql
from checkout_service.journal import statements as journal_statements
from checkout_service.journal.opening import open_journal
from checkout_service.journal.statements import Claims
from checkout_service.ports import EMAIL, EMPTY_CART, OUTBOX_KINDS, Entry, Journal, Sent
from email_service.messages import MessageState, NewMessage
from email_service.spool import statements as spool_statements
from email_service.spool.sql import Spool, open_spool
from employee_api.database import MIGRATIONS
from payment_service import domain as payment
from payment_service.ledger import sql as ledger_statements
from payment_service.ledger.sql import open_ledger
from shipping_service import domain as shipping
from shipping_service.manifest import sql as manifest_statements
from shipping_service.manifest.sql import open_manifest
from shop_kit.databases import execute
from shop_kit.employee_api import PASSWORD, Clock, api_starter
from shop_kit.statement_errors import StatementErrors

FIRST = Position(0.0, "")


def texts_of(module: ModuleType) -> list[str]:
    """Return the statements of a module."""
    public = [value for name, value in vars(module).items() if name.isupper() and not name.startswith("_")]
    claims = [value for value in public if isinstance(value, Claims)]
    properties = [name for name, value in vars(Claims).items() if isinstance(value, property)]
    texts = [text for text in public if isinstance(text, str) and text.split()[0] in {"SELECT", "INSERT", "UPDATE"}]
    texts += [text for text in public if isinstance(text, str) and text.split()[0] in {"DELETE", "WITH"}]
    return texts + [getattr(found, name) for found in claims for name in properties]


def required(found: Any) -> Any:
    if not found:
        raise Unavailable("an earlier step failed")
    return found


def new_order(name: str) -> Entry:
    lines = (OrderLine("mug", 1, Money.of("EUR", 5)),)
    address = Address("Main 1", "Berlin", "BE", "Germany", 10115)
    return Entry(
        name, "fingerprint", Order(order_id_of(name), name, "a@b.example", name, address, lines, lines[0].cost)
    )


def journal_steps(journal: Journal, scope: str) -> Iterator[Coroutine[Any, Any, Any]]:
    first, second = new_order(scope), new_order(f"{scope} again")
    shipped = Transition(State.CHARGING, State.SHIPPED, "transaction", "track")
    declined = Transition(State.CHARGING, State.DECLINED, refusal=Refusal("FailedPrecondition", "NO", "no"))

    async def read() -> Entry:
        return required(await journal.read(first.order_id))  # type: ignore[no-any-return]

    async def change() -> None:
        await journal.release(first.claim, delay_seconds=-1, reason="")
        await journal.take_over(await read())
        await journal.update((await read()).claim, declined)
        await journal.reopen(await read(), new_order(scope))
        await journal.update((await read()).claim, shipped)

    async def fail_and_send(kind: str) -> None:
        for item in await journal.claim_outbox(kind, 9, failed=False):
            await journal.postpone(item, delay_seconds=-1, reason="")
        for item in await journal.claim_outbox(kind, 9, failed=True):
            await journal.set_dead(item.entry.order_id, kind, reason="")
        await journal.requeue(first.order_id)

    async def recover() -> None:
        await journal.insert(second)
        await journal.release(second.claim, delay_seconds=-1, reason="")
        for failed in (False, True):
            for entry in await journal.claim_expired(State.CHARGING, 9, failed=failed):
                await journal.release(entry.claim, delay_seconds=-1, reason="")

    yield journal.insert(first)
    yield journal.find(first.scope)
    yield journal.find_of_cart("user", "cart")
    yield from (change(), fail_and_send(EMAIL), fail_and_send(EMPTY_CART), recover())
    yield journal.settle([Sent(first.order_id, kind) for kind in OUTBOX_KINDS])
    yield from reading_steps(journal, first.order_id)


def reading_steps(journal: Journal, order_id: str) -> Iterator[Coroutine[Any, Any, Any]]:
    yield from (journal.release_own(), journal.settle_complete(), journal.statistics(), journal.check())
    yield from (journal.list_of_user("user", 1), journal.scan(FIRST, 1))
    yield from (journal.list_orders([state], stuck=False, limit=1) for state in State)
    yield from (journal.list_orders([], stuck=stuck, limit=1) for stuck in (False, True))
    yield from (journal.outbox_of([order_id]), journal.history(order_id))
    yield journal.delete_old(older_than_seconds=-60, limit=9)


def ledger_steps(ledger: payment.Ledger, key: str) -> Iterator[Coroutine[Any, Any, Any]]:
    paid = payment.Payment(Money.of("EUR", 5), b"hmac", "key", "visa", purchase_id=key)

    async def buy_again() -> None:
        with suppress(payment.CartOrdered):
            await ledger.record(payment.Entry(f"{key} again", payment.State.CHARGED, paid, None))

    yield ledger.record(payment.Entry(key, payment.State.CHARGED, paid, None))
    yield from (buy_again(), ledger.find(key), ledger.void(key), ledger.list_captured(FIRST, 1), ledger.check())


def manifest_steps(manifest: shipping.Manifest, key: str) -> Iterator[Coroutine[Any, Any, Any]]:
    address = Address("Main 1", "Berlin", "BE", "Germany", 10115)
    yield manifest.record(shipping.Entry(key, shipping.Parcel(address, (shipping.Item("mug", 1),))))
    yield from (manifest.find(key), manifest.list_shipments(FIRST, 1), manifest.check())
    yield manifest.delete_old(older_than_seconds=-60, limit=9)


def spool_steps(spool: Spool, key: str) -> Iterator[Coroutine[Any, Any, Any]]:
    async def send() -> None:
        for message in await spool.claim(9):
            await spool.begin_sending(message)
            await spool.postpone(message, delay_seconds=-1, reason="", deferred=True)
            await spool.finish(message, MessageState.REFUSED)
            await spool.requeue(message.message_id)

    yield spool.add([NewMessage(key, "a@b.example", b"text")])
    yield from (send(), spool.give_up_overdue(), spool.delete_old(), spool.list_unsent(MessageState.QUEUED, 1))
    yield from (spool.read(key), spool.statistics(), spool.check())


STORES: dict[str, tuple[Callable[..., Any], ModuleType, Callable[..., Iterator[Coroutine[Any, Any, Any]]]]] = {
    "journal": (partial(open_journal, worker="one"), journal_statements, journal_steps),
    "ledger": (open_ledger, ledger_statements, ledger_steps),
    "manifest": (open_manifest, manifest_statements, manifest_steps),
    "spool": (open_spool, spool_statements, spool_steps),
}


async def failures(steps: Iterator[Coroutine[Any, Any, Any]]) -> int:
    """Run the steps; return how many of them the store could not do."""
    count = 0
    for step in steps:
        try:
            await step
        except Unavailable:
            count += 1
    return count


@pytest.mark.parametrize("name", STORES)
async def test_any_error_of_any_statement_is_that_of_its_store(
    name: str, database_url: str, statement_errors: StatementErrors, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal_sql, "OUTBOX_LEASE_SECONDS", -1)
    (opening, module, steps), runs = STORES[name], statement_errors.runs
    texts = texts_of(module)
    if database_url.startswith("postgresql") and module is spool_statements:
        texts.remove(spool_statements.RELEASE_CLAIMS)  # several processes share the database
    for number, text in enumerate(["", *texts]):
        statement_errors.failing, before = text, runs[text]
        async with opening(database_url) as store:
            failed = await failures(steps(store, f"{number}"))
        assert (runs[text] > before) if text else not failed
    statement_errors.failing = ""
    async with opening(database_url) as store:
        assert await failures(steps(store, "after")) == 0


def redis_errors(kind: type[Exception]) -> Iterator[type[Exception]]:
    yield kind
    for further in kind.__subclasses__():
        if further is not redis.exceptions.AskError:  # those of clusters name a server
            yield from redis_errors(further)


@pytest.mark.parametrize("error", dict.fromkeys(redis_errors(redis.exceptions.RedisError)))
async def test_any_error_of_valkey_is_that_of_the_store(
    error: type[Exception], empty_valkey_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(*_arguments: Any, **_options: Any) -> None:
        raise error("injected")

    async with open_valkey_store(empty_valkey_url, 60) as store:
        with monkeypatch.context() as patched:
            patched.setattr(redis.asyncio.Redis, "execute_command", fail)
            for step in cart_steps(store):
                with pytest.raises(StoreUnavailable, match="carts are unavailable") as refused:
                    await step
                assert refused.value.__cause__ is None  # the caller gets no text of the server
        assert await failures(cart_steps(store)) == 0


def cart_steps(store: CartStore) -> Iterator[Coroutine[Any, Any, Any]]:
    yield from (store.add(Addition("ann", "mug", 1)), store.read("ann"), store.check(), store.empty("ann", None))
    yield from (store.set_quantity(NewQuantity("ann", "mug", 1)), store.remove_ordered(Purchase("ann", "etag", ())))


REQUESTS: list[tuple[str, str, dict[str, Any] | None]] = [
    ("POST", "/api/auth/register", {"name": "Ada", "email": "ada@x", "password": PASSWORD}),
    ("POST", "/api/auth/login", {"email": "ada@x", "password": PASSWORD}),
    ("POST", "/api/auth/users", {"name": "Bob", "email": "bob@x", "password": PASSWORD}),
    ("POST", "/api/tasks", {"title": "Write it down"}),
    ("PATCH", "/api/tasks/{task}", {"status": "done"}),
    ("POST", "/api/tasks/{task}/comments", {"body": "Done"}),
    *[("GET", f"/api/{path}", None) for path in ("auth/users", "tasks", "tasks/{task}", "activities")],
    ("GET", "/api/tasks/{task}/comments", None),
    ("DELETE", "/api/tasks/{task}", None),
]


@pytest.mark.parametrize("instead", ["SELECT * FROM no_such_table", "INSERT INTO refused VALUES (0)"])
async def test_any_failed_statement_of_the_employee_api_is_a_500(database_url: str, instead: str) -> None:
    migrate(database_url, MIGRATIONS)
    execute(database_url, "CREATE TABLE refused (number INT CHECK (number > 0))")
    async with api_starter(database_url, Clock())() as api:
        task, failing = "", 0

        def fail(_connection: Any, _cursor: Any, text: str, parameters: Any, _context: Any, _many: bool) -> Any:
            nonlocal failing
            failing -= 1
            return (text, parameters) if failing else (instead, ())

        event.listen(api.engine.sync_engine, "before_cursor_execute", fail, retval=True)
        for method, path, body in REQUESTS:
            for number in range(1, 100):
                failing = number
                response = await api.client.request(method, path.format(task=task), json=body)
                if failing > 0:  # it runs fewer statements
                    break
                assert response.status_code == 500, (method, path, number, response.text)
            assert response.is_success, (method, path, response.text)
            task = response.json().get("id", "") if path == "/api/tasks" and method == "POST" else task
