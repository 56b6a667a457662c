"""The safety devices of the shop: for each one the edit that removes it, and a fast test that must then fail."""

from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]

_CHECKOUT = "services/checkout/src/checkout_service"
_PAYMENT = "services/payment/src/payment_service"
_SHIPPING = "services/shipping/src/shipping_service"
_CART = "services/cart/src/cart_service"
_EMAIL = "services/email/src/email_service"
_CHASSIS = "services/_chassis/src/chassis"


@dataclass(frozen=True, slots=True)
class Device:
    """A safety device, and its removal by replacing one text of one file.

    Attributes:
        name: for the command line and the table.
        text: occurs once in the file.
        tests: at least one of them fails without the device: pytest's names, `file::function`.
    """

    name: str
    file: str
    text: str
    replacement: str
    tests: tuple[str, ...]

    def mutate(self, source: str) -> str:
        """Return a file's content without the device. Raise ValueError unless the text occurs once."""
        if source.count(self.text) != 1:
            raise ValueError(f"{self.name}: the text occurs {source.count(self.text)} times in {self.file}")
        return source.replace(self.text, self.replacement)


def _tests(folder: str, *names: str) -> tuple[str, ...]:
    return tuple(f"services/{folder}/tests/{name}" for name in names)


DEVICES = (
    Device(
        "fence",
        f"{_PAYMENT}/domain.py",
        "return await self.ledger.record(Entry(key, State.FENCED))",
        "return await self.ledger.find(key) or Entry(key, State.FENCED)",
        _tests("payment", "test_domain.py::test_every_charge_after_the_fence_is_refused"),
    ),
    Device(
        "one ledger entry per key, SQLite",
        f"{_PAYMENT}/ledger/sqlite.py",
        "    INSERT INTO charges (",
        "    INSERT OR REPLACE INTO charges (",
        _tests("payment", "test_ledger.py::test_the_first_entry_of_a_key_is_final"),
    ),
    Device(
        "one ledger entry per key, PostgreSQL",
        f"{_PAYMENT}/ledger/postgres.py",
        ") ON CONFLICT DO NOTHING RETURNING",
        ") ON CONFLICT (charge_key) DO UPDATE SET state = EXCLUDED.state RETURNING",
        _tests("payment", "test_ledger.py::test_the_first_entry_of_a_key_is_final"),
    ),
    Device(
        "transaction ids derive from keys",
        f"{_PAYMENT}/domain.py",
        "return str(uuid.uuid5(_TRANSACTIONS, self.key))",
        "return str(uuid.uuid4())",
        _tests("payment", "test_service.py::test_a_repeated_charge_returns_the_same_transaction"),
    ),
    Device(
        "only a charge is voided",
        f"{_PAYMENT}/ledger/sqlite.py",
        "WHERE charge_key = :charge_key AND state = 'CHARGED'",
        "WHERE charge_key = :charge_key",
        _tests("payment", "test_ledger.py::test_only_a_charge_is_voided"),
    ),
    Device(
        "a charge sends its key",
        f"{_CHECKOUT}/peers/payment.py",
        'self._charges.Charge(request, metadata=(("idempotency-key", key),))',
        "self._charges.Charge(request)",
        _tests("checkout", "test_recovery.py::test_an_error_at_any_failpoint_ends_in_one_order"),
    ),
    Device(
        "a shipment sends its key",
        f"{_CHECKOUT}/peers/shipping.py",
        'metadata = (("idempotency-key", key),)',
        "metadata = ()",
        _tests("checkout", "test_recovery.py::test_an_error_at_any_failpoint_ends_in_one_order"),
    ),
    Device(
        "tracking ids derive from keys",
        f"{_SHIPPING}/domain.py",
        "uuid.uuid5(_TRACKING_ID_NAMESPACE, key)",
        "uuid.uuid4()",
        _tests("shipping", "test_domain.py::test_a_key_yields_the_same_tracking_id_in_every_process"),
    ),
    Device(
        "the manifest is flushed to disk",
        f"{_SHIPPING}/manifest.py",
        "os.fsync(self._file.fileno())",
        "pass",
        _tests("shipping", "test_manifest.py::test_a_line_is_on_disk_before_append_returns"),
    ),
    Device(
        "epoch",
        f"{_CHECKOUT}/journal/statements.py",
        "WHERE order_id = :order_id AND epoch = :epoch AND state = :before",
        "WHERE order_id = :order_id AND state = :before",
        _tests("checkout", "test_journal.py::test_a_superseded_worker_changes_nothing"),
    ),
    Device(
        "the order is recorded before the charge",
        f"{_CHECKOUT}/saga.py",
        "    if not (yield from perform(Insert())):\n        return SagaResult.SUPERSEDED\n"
        "    return (yield from charge(doubtful=False))",
        "    result = yield from charge(doubtful=False)\n"
        "    return result if (yield from perform(Insert())) else SagaResult.SUPERSEDED",
        _tests("checkout", "test_faults.py::test_a_stopped_database_prevents_the_charge"),
    ),
    Device(
        "the shipment is recorded before the response",
        f"{_CHECKOUT}/executor.py",
        "        if not await self._journal.update(order.order_id, work.epoch, transition):\n            return False\n",
        "        asyncio.get_running_loop().create_task(self._journal.update(order.order_id, work.epoch, transition))\n",
        _tests("checkout", "test_recovery.py::test_a_superseded_worker_changes_nothing_and_returns_the_same_order"),
    ),
    Device(
        "a refusal after a charge in doubt is fenced",
        f"{_CHECKOUT}/saga.py",
        "case Refused(refusal) if doubtful:",
        "case Refused(refusal) if doubtful and not refusal:",
        _tests("checkout", "test_service.py::test_a_refusal_after_a_charge_in_doubt_is_fenced_first"),
    ),
    Device(
        "one order per scope",
        f"{_CHECKOUT}/domain.py",
        'f"PlaceOrder\\0{kind}\\0{user_id}\\0{key}".encode()',
        'f"PlaceOrder\\0{kind}\\0{user_id}\\0{key}\\0{os.urandom(8).hex()}".encode()',
        _tests("checkout", "test_service.py::test_a_repeated_key_returns_the_same_bytes"),
    ),
    Device(
        "a key belongs to one request",
        f"{_CHECKOUT}/placing.py",
        "    if existing.fingerprint != pending.fingerprint:\n        raise IdempotencyKeyReused\n",
        "",
        _tests("checkout", "test_service.py::test_a_key_reused_for_a_different_request_is_refused"),
    ),
    Device(
        "an order outlives its call",
        f"{_CHECKOUT}/placing.py",
        "    await asyncio.wait([run.task], timeout=max(until - asyncio.get_running_loop().time(), 0))\n",
        "    await asyncio.wait_for(run.task, max(until - asyncio.get_running_loop().time(), 0))\n",
        _tests("checkout", "test_service.py::test_a_charge_in_doubt_at_the_deadline_is_an_order_in_progress"),
    ),
    Device(
        "the outbox is filled with the shipment",
        f"{_CHECKOUT}/journal/sql.py",
        "        if after is State.SHIPPED:\n            batch.append(",
        "        if after is State.VOIDED:\n            batch.append(",
        _tests("checkout", "test_journal.py::test_a_shipped_order_has_an_outbox"),
    ),
    Device(
        "an item leaves the outbox after it was sent",
        f"{_CHECKOUT}/outbox.py",
        "        try:\n            if kind == EMAIL:\n",
        "        self._sent.append(Sent(order.order_id, kind, step))\n        try:\n            if kind == EMAIL:\n",
        _tests("checkout", "test_recovery.py::test_an_email_is_sent_when_its_service_recovers"),
    ),
    Device(
        "a failed item remains in the outbox",
        f"{_CHECKOUT}/outbox.py",
        "        except REFUSALS as error:\n",
        "        except DomainError as error:\n",
        _tests("checkout", "test_recovery.py::test_an_email_is_sent_when_its_service_recovers"),
    ),
    Device(
        "a cart is emptied by its etag",
        f"{_CHECKOUT}/peers/notifications.py",
        'metadata = (("if-match", etag),) if etag else ()',
        "metadata = ()",
        _tests("checkout", "test_service.py::test_an_item_added_during_checkout_is_not_lost"),
    ),
    Device(
        "a stale etag empties no cart, memory",
        f"{_CART}/store.py",
        "if contents is not None and if_match in {None, contents.etag}:",
        "if contents is not None:",
        _tests("cart", "test_store.py::test_a_stale_etag_leaves_the_cart_unchanged"),
    ),
    Device(
        "an addition takes effect once",
        f"{_CART}/store.py",
        "        if addition.key is not None and self._is_repeated(addition, addition.key):\n            return\n",
        "",
        _tests("cart", "test_store.py::test_an_addition_with_a_key_takes_effect_once"),
    ),
    Device(
        "each change of a cart changes its etag",
        f"{_CART}/store.py",
        "contents.etag = new_etag()",
        "contents.etag = contents.etag or new_etag()",
        _tests("cart", "test_store.py::test_each_addition_changes_the_etag"),
    ),
    Device(
        "an e-mail has one Message-ID",
        f"{_EMAIL}/domain.py",
        "            return self.order_id\n",
        "            return self.order_id + str(id(self))\n",
        _tests("email", "test_domain.py::test_an_email_has_the_id_of_its_order_as_its_key"),
    ),
    Device(
        "synchronous = FULL, SQLite",
        f"{_CHASSIS}/sqlite.py",
        'connection.execute("PRAGMA synchronous = FULL")',
        'connection.execute("PRAGMA synchronous = OFF")',
        ("tests/mutants/test_durability.py::test_a_commit_to_sqlite_is_flushed",),
    ),
    Device(
        "synchronous_commit = on, PostgreSQL",
        f"{_CHASSIS}/postgres.py",
        '"-c synchronous_commit=on"',
        '"-c synchronous_commit=off"',
        ("tests/mutants/test_durability.py::test_a_commit_to_postgresql_is_flushed",),
    ),
    Device(
        "a batch is committed before its callers get results",
        f"{_CHASSIS}/sqlite.py",
        '            self._connection.execute("COMMIT")\n',
        "",
        _tests("payment", "test_ledger.py::test_entries_survive_a_restart"),
    ),
)
