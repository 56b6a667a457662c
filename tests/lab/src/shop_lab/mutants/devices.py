"""The safety devices of the shop: for each one the edit that removes it, and a fast test that must then fail."""

from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[5]

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
        test: fails without the device: `file::function` in the tests of the file's service, or from the root.
    """

    name: str
    file: str
    text: str
    replacement: str
    test: str

    @property
    def test_id(self) -> str:
        """The test as pytest names it."""
        return self.test if "/" in self.test else f"{self.file.partition('/src/')[0]}/tests/{self.test}"

    def mutate(self, source: str) -> str:
        """Return a file's content without the device. Raise ValueError unless the text occurs once."""
        if source.count(self.text) != 1:
            raise ValueError(f"{self.name}: the text occurs {source.count(self.text)} times in {self.file}")
        return source.replace(self.text, self.replacement)


DEVICES = (
    Device(
        "fence",
        f"{_PAYMENT}/domain.py",
        "return await self.ledger.record(Entry(key, State.FENCED))",
        "return await self.ledger.find(key) or Entry(key, State.FENCED)",
        "test_domain.py::test_every_charge_after_the_fence_is_refused",
    ),
    Device(
        "one ledger entry per key",
        f"{_PAYMENT}/ledger/sql.py",
        ") ON CONFLICT DO NOTHING RETURNING",
        ") ON CONFLICT (charge_key) DO UPDATE SET state = excluded.state RETURNING",
        "test_ledger.py::test_the_first_entry_of_a_key_is_final",
    ),
    Device(
        "one captured charge per purchase",
        f"{_PAYMENT}/ledger/migrations/versions/0004_purchases.py",
        "        unique=True,\n",
        "        unique=False,\n",
        "test_ledger.py::test_a_purchase_has_one_captured_charge",
    ),
    Device(
        "transaction ids derive from keys",
        f"{_PAYMENT}/domain.py",
        "return str(uuid.uuid5(_TRANSACTION_IDS, self.key))",
        "return str(uuid.uuid4())",
        "test_service.py::test_a_repeated_charge_returns_the_same_transaction",
    ),
    Device(
        "only a charge is voided",
        f"{_PAYMENT}/ledger/sql.py",
        "WHERE charge_key = :charge_key AND state = 'CHARGED' RETURNING",
        "WHERE charge_key = :charge_key RETURNING",
        "test_ledger.py::test_only_a_charge_is_voided",
    ),
    Device(
        "a charge sends its key",
        f"{_CHECKOUT}/peers/payment.py",
        '                ("idempotency-key", key),\n',
        "",
        "test_recovery.py::test_an_error_at_any_failpoint_ends_in_one_order",
    ),
    Device(
        "a charge is adopted by its own request only",
        f"{_CHECKOUT}/peers/payment.py",
        "fingerprint.startswith(charged.request_fingerprint)",
        "True",
        "test_lost_commits.py::test_recovery_does_not_ship_to_one_address_what_another_request_has_paid",
    ),
    Device(
        "prices are checked",
        f"{_CHASSIS}/rpc/wire.py",
        "return message.currency_code == currency_code and message.units >= 0 and 0 <= message.nanos <= MAX_NANOS",
        "return True",
        "services/checkout/tests/test_peer_checks.py::test_an_invalid_read_charges_nothing",
    ),
    Device(
        "reasons of peers are checked",
        f"{_CHASSIS}/rpc/status.py",
        "return reason if _REASON.fullmatch(reason) else errors.PeerBroken.default_reason",
        "return reason",
        "test_client.py::test_a_malformed_reason_is_replaced",
    ),
    Device(
        "a shipment sends its key",
        f"{_CHECKOUT}/peers/shipping.py",
        'metadata = (("idempotency-key", key),)',
        "metadata = ()",
        "test_recovery.py::test_an_error_at_any_failpoint_ends_in_one_order",
    ),
    Device(
        "tracking ids derive from keys",
        f"{_SHIPPING}/domain.py",
        "uuid.uuid5(_TRACKING_IDS, self.key)",
        "uuid.uuid4()",
        "test_domain.py::test_a_key_has_the_same_tracking_id_in_every_release",
    ),
    Device(
        "fence of shipments",
        f"{_SHIPPING}/domain.py",
        "return await self._record(Entry(key), charged_at)",
        "return await self.manifest.find(key) or Entry(key)",
        "test_domain.py::test_a_shipment_under_a_fenced_key_fails",
    ),
    Device(
        "a forgotten shipment is not fenced",
        f"{_SHIPPING}/domain.py",
        "if not charged_at or charged_at > self.complete_since():",
        "if True:",
        "test_domain.py::test_what_was_charged_before_the_oldest_entry_is_neither_shipped_nor_fenced",
    ),
    Device(
        "one shipment or fence per key",
        f"{_SHIPPING}/manifest/sql.py",
        "ON CONFLICT DO NOTHING RETURNING",
        "ON CONFLICT (shipment_key) DO UPDATE SET state = excluded.state, parcel = excluded.parcel RETURNING",
        "test_manifest.py::test_the_first_entry_of_a_key_is_final",
    ),
    Device(
        "epoch, owner and attempt",
        f"{_CHECKOUT}/journal/statements.py",
        '_HELD = "order_id = :order_id AND attempt = :attempt AND epoch = :epoch AND owner = :owner"',
        '_HELD = "order_id = :order_id"',
        "test_journal.py::test_a_superseded_worker_changes_nothing",
    ),
    Device(
        "owner",
        f"{_CHECKOUT}/journal/statements.py",
        " AND epoch = :epoch AND owner = :owner",
        " AND epoch = :epoch",
        "test_journal.py::test_an_epoch_that_is_handed_out_twice_belongs_to_one_worker",
    ),
    Device(
        "retention deletes no reopened order",
        f"{_CHECKOUT}/journal/statements.py",
        "WHERE {_LISTED} AND updated_at < {NOW} - :older_than_seconds AND {_FINISHED}\n    RETURNING",
        "WHERE {_LISTED}\n    RETURNING",
        "test_journal.py::test_an_order_that_is_reopened_while_old_ones_are_deleted_remains",
    ),
    Device(
        "one live order per generation of a cart",
        f"{_CHECKOUT}/journal/migrations/versions/0002_owners.py",
        "        unique=True,\n",
        "        unique=False,\n",
        "test_journal.py::test_a_cart_has_one_order_at_a_time_and_so_has_a_scope",
    ),
    Device(
        "an order begins again unless another holds the cart",
        f"{_CHECKOUT}/journal/statements.py",
        "WHERE holder.user_id = :user_id AND holder.cart_etag",
        "WHERE holder.user_id IS NULL AND holder.cart_etag",
        "test_journal.py::test_one_of_many_concurrent_orders_of_a_cart_wins",
    ),
    Device(
        "an order has the total that its customer saw",
        f"{_CHECKOUT}/placing.py",
        "if request.expected_total is not None and request.expected_total != str(order.total):",
        "if False:",
        "test_quotes.py::test_an_order_of_another_total_is_not_placed",
    ),
    Device(
        "an order begins again with the cart of now",
        f"{_CHECKOUT}/placing.py",
        "await self.journal.reopen(before, new)",
        "await self.journal.reopen(before, replace(new, order=before.order))",
        "test_orders_of_a_cart.py::test_an_abandoned_order_begins_again_with_the_cart_and_the_prices_of_now",
    ),
    Device(
        "order ids derive from scopes",
        f"{_CHECKOUT}/domain.py",
        'hashlib.sha256(f"order\\0{scope}".encode())',
        "hashlib.sha256(uuid.uuid4().bytes)",
        "test_domain.py::test_a_scope_has_the_same_order_id_in_every_release",
    ),
    Device(
        "an order is settled under a lock",
        f"{_CHECKOUT}/journal/statements.py",
        "ORDER BY order_id FOR UPDATE",
        "ORDER BY order_id",
        "test_journal.py::test_a_settlement_waits_for_a_concurrent_one_of_the_same_order",
    ),
    Device(
        "complete orders are swept",
        f"{_CHECKOUT}/journal/sql.py",
        'return await self._set_done([{"order_id": row["order_id"]} for row in found]) if found else []',
        "return [] if found else found",
        "test_journal.py::test_a_shipped_order_whose_outbox_is_empty_is_completed",
    ),
    Device(
        "an order ends behind a new fence only",
        f"{_CHECKOUT}/saga.py",
        "case Fenced(existing=False):",
        "case Fenced():",
        "test_saga.py::test_an_order_does_not_end_behind_a_fence_that_existed",
    ),
    Device(
        "a refused shipment is resolved after a try in doubt",
        f"{_CHECKOUT}/saga.py",
        "return (yield from _resolve_refused_shipment(charged, refusal, certain=certain))",
        "return (yield from _void(transaction_id, refusal))",
        "test_saga_schedules.py",
    ),
    Device(
        "the order is recorded before the charge",
        f"{_CHECKOUT}/saga.py",
        "    if not (yield Insert()):\n        return SagaResult.SUPERSEDED\n"
        "    return (yield from charge(resumed=False))",
        "    result = yield from charge(resumed=False)\n"
        "    return result if (yield Insert()) else SagaResult.SUPERSEDED",
        "test_saga.py::test_an_order_is_recorded_before_its_charge",
    ),
    Device(
        "a superseded worker has no effects",
        f"{_CHECKOUT}/saga.py",
        "if not (yield from _update(Transition(State.CHARGING, State.SHIPPED, transaction_id, tracking_id))):",
        "if None is (yield from _update(Transition(State.CHARGING, State.SHIPPED, transaction_id, tracking_id))):",
        "test_saga.py::test_a_superseded_worker_sends_no_confirmation",
    ),
    Device(
        "a refusal is final behind a fence only",
        f"{_CHECKOUT}/saga.py",
        "return (yield from resolve(State.DECLINED, refusal))",
        "return (yield from _end(State.CHARGING, State.DECLINED, refusal))",
        "test_service.py::test_a_refusal_after_a_charge_in_doubt_is_fenced_first",
    ),
    Device(
        "a pending refusal is not charged",
        f"{_CHECKOUT}/saga.py",
        "return resolve(entry.refused_as, entry.refusal) if entry.refused_as else charge(resumed=True)",
        "return charge(resumed=True)",
        "test_saga_schedules.py::test_a_card_is_not_charged_behind_the_fence_of_a_refusal",
    ),
    Device(
        "a pending refusal is recorded",
        f"{_CHECKOUT}/journal/rows.py",
        'pending = {"refused_as": refused_as} if refused_as else {}',
        "pending: dict[str, Any] = {}",
        "test_journal.py::test_a_pending_refusal_is_read_back_as_recorded",
    ),
    Device(
        "a voided order ends behind a new fence only",
        f"{_CHECKOUT}/saga.py",
        "            # A lost part of the journal may have charged a later attempt: look before the order ends.\n"
        "            if not (yield from _begin_next_attempt(State.VOIDING, refusal, State.VOIDED)):\n"
        "                return SagaResult.SUPERSEDED\n"
        "            return (yield from resolve(State.VOIDED, refusal))\n",
        "            return (yield from _end(State.VOIDING, State.VOIDED, refusal))\n",
        "test_saga_schedules.py::test_an_order_is_not_voided_while_a_lost_attempt_is_charged",
    ),
    Device(
        "a lost order is restored in three states only",
        f"{_CHECKOUT}/domain.py",
        "RESTORABLE = frozenset({State.SHIPPED, State.VOIDING, State.NEEDS_REVIEW})",
        "RESTORABLE = frozenset(State)",
        "test_lost_commits.py::test_a_refusal_of_an_order_that_was_lost_under_its_worker_is_not_recorded",
    ),
    Device(
        "one order per scope",
        f"{_CHECKOUT}/requests.py",
        'f"PlaceOrder\\0{kind}\\0{user_id}\\0{key}".encode()',
        'f"PlaceOrder\\0{kind}\\0{user_id}\\0{key}\\0{uuid.uuid4()}".encode()',
        "test_service.py::test_a_repeated_key_returns_the_same_bytes",
    ),
    Device(
        "a key belongs to one request",
        f"{_CHECKOUT}/requests.py",
        "return fingerprint in self.fingerprints",
        "return bool(fingerprint)",
        "test_service.py::test_a_key_reused_for_a_different_request_is_refused",
    ),
    Device(
        "an order outlives its call",
        f"{_CHECKOUT}/repeats.py",
        "    await asyncio.wait([run.task], timeout=max(until - asyncio.get_running_loop().time(), 0))\n",
        "    await asyncio.wait_for(run.task, max(until - asyncio.get_running_loop().time(), 0))\n",
        "test_service.py::test_a_charge_in_doubt_at_the_deadline_is_an_order_in_progress",
    ),
    Device(
        "the outbox is filled with the shipment",
        f"{_CHECKOUT}/journal/sql.py",
        "        if after is State.SHIPPED:\n            batch.append(",
        "        if after is State.VOIDED:\n            batch.append(",
        "test_journal.py::test_a_shipped_order_has_an_outbox",
    ),
    Device(
        "an item leaves the outbox after it was sent",
        f"{_CHECKOUT}/outbox.py",
        "        confirmation = self.senders[EMAIL](entry)\n",
        "        self._sent.append(Sent(entry.order_id, EMAIL))\n        confirmation = self.senders[EMAIL](entry)\n",
        "test_recovery.py::test_an_email_is_sent_when_its_service_recovers",
    ),
    Device(
        "a failed item remains in the outbox",
        f"{_CHECKOUT}/outbox.py",
        "        except Unimplemented:  # perhaps from a proxy without a route, so it decides nothing\n"
        "            raise\n",
        "        except DomainError:\n            pass\n",
        "test_recovery.py::test_an_email_is_sent_when_its_service_recovers",
    ),
    Device(
        "a refused notification is a dead letter",
        f"{_CHECKOUT}/outbox.py",
        "            await self._set_dead(order_id, kind, error.reason)\n            return\n",
        "            log.warning(error.reason)\n",
        "test_operators.py::test_a_confirmation_that_is_refused_for_good_is_a_dead_letter",
    ),
    Device(
        "a dead letter is requeued",
        f"{_CHECKOUT}/journal/statements.py",
        "UPDATE outbox SET dead_at = NULL, failures = 0, due_at = {NOW}\n",
        "UPDATE outbox SET failures = 0, due_at = {NOW}\n",
        "test_journal.py::test_a_requeued_dead_letter_is_due_as_if_it_had_never_failed",
    ),
    Device(
        "a charge that cannot be released is left to operators",
        f"{_CHECKOUT}/saga.py",
        "return (yield from _end(State.VOIDING, State.NEEDS_REFUND, refusal))",
        "return (yield from _end(State.VOIDING, State.VOIDED, refusal))",
        "test_service.py::test_a_charge_that_cannot_be_voided_needs_a_refund",
    ),
    Device(
        "a shipment in doubt that cannot be resolved is left to operators",
        f"{_CHECKOUT}/saga.py",
        "        case Unsupported() if certain:\n",
        "        case Unsupported():\n",
        "test_service.py::test_without_a_manifest_a_refusal_after_a_shipment_in_doubt_needs_review",
    ),
    Device(
        "a cart is emptied once its order is shipped",
        f"{_CHECKOUT}/saga.py",
        "    outcome, tries = yield from _until_certain(Ship(charged.charged_at))\n",
        "    yield StartRemoval()\n    outcome, tries = yield from _until_certain(Ship(charged.charged_at))\n",
        "test_service.py::test_no_cart_is_emptied_before_its_order_is_shipped",
    ),
    Device(
        "a quote is reused only while shipping serves",
        f"{_CHECKOUT}/peers/shipping_quotes.py",
        " and self._is_serving():",
        ":",
        "test_shipping_quotes.py::test_no_quote_is_reused_while_shipping_does_not_serve",
    ),
    Device(
        "a cart is emptied by its etag",
        f"{_CHECKOUT}/peers/carts.py",
        'metadata = (("if-match", order.cart_generation),) if order.cart_generation else ()',
        "metadata = ()",
        "test_service.py::test_a_cart_service_without_ordered_items_leaves_a_changed_cart_alone",
    ),
    Device(
        "a stale etag empties no cart",
        f"{_CART}/domain.py",
        "if self.quantities and if_match in {None, self.etag}",
        "if self.quantities",
        "test_store.py::test_a_stale_etag_leaves_the_cart_unchanged",
    ),
    Device(
        "ordered items are removed from their generation",
        f"{_CART}/domain.py",
        " or generation_of(self.etag) != generation_of(purchase.etag):",
        ":",
        "test_store.py::test_a_repeated_removal_leaves_a_refilled_cart_unchanged",
    ),
    Device(
        "a removal begins a new generation",
        f"{_CART}/domain.py",
        "new_etag() if remaining",
        "new_etag(self.etag) if remaining",
        "test_store.py::test_a_repeated_removal_leaves_later_items_unchanged",
    ),
    Device(
        "an addition takes effect once",
        f"{_CART}/store.py",
        "        if previous is not None:\n            return False\n",
        "",
        "test_store.py::test_an_addition_with_a_key_takes_effect_once",
    ),
    Device(
        "each change of a cart changes its etag",
        f"{_CART}/domain.py",
        'etag = new_etag(self.etag if self.quantities else "")',
        "etag = self.etag or new_etag()",
        "test_store.py::test_each_addition_changes_the_etag",
    ),
    Device(
        "an addition whose reply is lost takes effect once",
        f"{_CART}/sql.py",
        ", *([RECORD_KEY] if key else [])",
        "",
        "test_sql.py::test_an_addition_whose_reply_is_lost_takes_effect_once",
    ),
    Device(
        "a cart that has changed since it was read is not written",
        f"{_CART}/sql.py",
        " AND version = :version",
        "",
        "test_store.py::test_replicas_share_carts_keys_and_generations",
    ),
    Device(
        "ordered items are removed from their generation, Valkey",
        f"{_CART}/remove_ordered.lua",
        " or string.sub(current, 1, 16) ~= string.sub(ordered, 1, 16)",
        "",
        "test_store.py::test_a_repeated_removal_leaves_a_refilled_cart_unchanged",
    ),
    Device(
        "a removal begins a new generation, Valkey",
        f"{_CART}/remove_ordered.lua",
        "1 and etag or",
        "1 and current or",
        "test_store.py::test_a_repeated_removal_leaves_later_items_unchanged",
    ),
    Device(
        "an addition takes effect once, Valkey",
        f"{_CART}/add.lua",
        "  if fingerprint == ARGV[8] then return 'repeated' end\n",
        "  if fingerprint == ARGV[8] then fingerprint = nil end\n",
        "test_store.py::test_an_addition_with_a_key_takes_effect_once",
    ),
    Device(
        "each change of a cart changes its etag, Valkey",
        f"{_CART}/add.lua",
        "redis.call('HSET', cart, ''",
        "redis.call('HSETNX', cart, ''",
        "test_store.py::test_each_addition_changes_the_etag",
    ),
    Device(
        "an e-mail has one Message-ID",
        f"{_EMAIL}/domain.py",
        "        return order_id\n",
        '        return f"{order_id}-{id(object())}"\n',
        "test_domain.py::test_a_message_has_the_id_of_its_order",
    ),
    Device(
        "a message is accepted once",
        f"{_EMAIL}/spool/statements.py",
        "DO UPDATE SET letter_id = EXCLUDED.letter_id RETURNING state",
        "DO UPDATE SET state = EXCLUDED.state RETURNING state",
        "test_spool.py::test_a_sent_message_added_again_is_not_sent_again",
    ),
    Device(
        "synchronous = FULL, SQLite",
        f"{_CHASSIS}/sql/sqlite.py",
        'connection.execute("PRAGMA synchronous = FULL")',
        'connection.execute("PRAGMA synchronous = OFF")',
        "tests/lab/tests/test_durability.py::test_a_commit_to_sqlite_is_flushed",
    ),
    Device(
        "synchronous_commit = on, PostgreSQL",
        f"{_CHASSIS}/sql/postgres.py",
        "SET synchronous_commit = on;",
        "SET synchronous_commit = off;",
        "tests/lab/tests/test_durability.py::test_a_commit_to_postgresql_is_flushed",
    ),
    Device(
        "a batch is committed before its callers get results",
        f"{_CHASSIS}/sql/sqlite.py",
        "        try:\n"
        '            _execute_unlocked(connection, "BEGIN IMMEDIATE", min(wait_seconds, ANSWER_WITHIN_SECONDS))\n'
        "        except sqlite3.OperationalError as error:\n"
        "            if wait_seconds or not _is_locked(error):\n"
        "                raise\n"
        "            raise BlockingIOError from error\n"
        "        try:\n"
        "            results = [[fetch(connection, text, parameters) for text, parameters in statements]"
        " for statements in batch]\n"
        '            connection.execute("COMMIT")\n',
        "        while connection.in_transaction:\n"
        '            __import__("time").sleep(0.001)\n'
        "        try:\n"
        '            _execute_unlocked(connection, "BEGIN IMMEDIATE", min(wait_seconds, ANSWER_WITHIN_SECONDS))\n'
        "        except sqlite3.OperationalError as error:\n"
        "            if wait_seconds or not _is_locked(error):\n"
        "                raise\n"
        "            raise BlockingIOError from error\n"
        "        results = [[fetch(connection, text, parameters) for text, parameters in statements]"
        " for statements in batch]\n"
        '        __import__("threading").Timer(0.05, connection.execute, ["COMMIT"]).start()\n'
        "        return results\n"
        "        try:\n"
        "            pass\n",
        "services/payment/tests/test_ledger.py::test_entries_survive_a_restart",
    ),
    Device(
        "listed callers",
        f"{_CHASSIS}/rpc/access.py",
        "if caller in allowed and not others:",
        "if caller is not None:",
        "test_identity.py::test_a_caller_may_make_the_calls_that_the_table_lists_and_no_others",
    ),
    Device(
        "the old channel until a peer accepts the new certificate",
        f"{_CHASSIS}/rpc/connection.py",
        "while new.get_state(try_to_connect=True) is not grpc.ChannelConnectivity.READY:",
        "while not new:",
        "test_identity.py::test_the_old_channel_is_used_until_a_peer_accepts_the_new_certificate",
    ),
)
