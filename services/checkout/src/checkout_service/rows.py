"""The journal's rows: from the domain and back."""

import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from chassis.errors import FieldViolation
from chassis.money import Money
from checkout_service.domain import REFUSED, Refusal, State
from checkout_service.journal import Entry, NewOrder
from checkout_service.saga import Update

Row = tuple[Any, ...]

_STEPS = {
    State.DECLINED: "declined",
    State.ABANDONED: "fenced",
    State.VOIDED: "voided",
    State.NEEDS_REFUND: "void_refused",
}


def new_row(new: NewOrder, worker: str) -> tuple[Any, ...]:
    """What statements.INSERT takes."""
    order, total = new.order, new.order.total
    return (
        order.order_id,
        new.scope,
        new.fingerprint,
        order.user_id,
        order.email,
        order.cart_etag,
        total.currency_code,
        total.units,
        total.nanos,
        worker,
        new.traceparent,
        new.snapshot,
    )


def entry(row: Row) -> Entry:
    """What statements.ENTRY_COLUMNS give."""
    (
        order_id, fingerprint, user_id, email, cart_etag, currency_code, units, nanos, state, attempt, epoch,
        leased, failures, reason, refusal, tracking_id, traceparent, created_at, updated_at, stuck, snapshot, answer,
    ) = row  # fmt: skip
    refused = _load(refusal)
    if refused and state in REFUSED:
        reason = refused.reason
    total = Money.of(currency_code, units, nanos)
    return Entry(
        order_id, fingerprint, user_id, email, cart_etag, total, State(state), attempt, epoch,
        bool(leased), failures, reason, refused, tracking_id, traceparent, created_at, updated_at, bool(stuck),
        snapshot, answer,
    )  # fmt: skip


def first(rows: Sequence[Row]) -> Entry | None:
    """The first row's entry, if there is one."""
    return entry(rows[0]) if rows else None


def dump(refusal: Refusal | None) -> str:
    """A refusal as JSON, nothing as an empty text."""
    return json.dumps(asdict(refusal)) if refusal else ""


def _load(text: str) -> Refusal | None:
    if not text:
        return None
    fields = json.loads(text)
    violations = tuple(FieldViolation(**each) for each in fields.pop("violations"))
    return Refusal(**fields, violations=violations)


def steps(change: Update) -> list[tuple[str, str]]:
    """What a change adds to the order's history: steps and their details."""
    reason = change.refusal.reason if change.refusal else ""
    charged = [("charged", change.transaction_id)] if change.transaction_id else []
    match change.after:
        case State.SHIPPED:
            return [*charged, ("shipped", change.tracking_id)]
        case State.VOIDING:
            return [*charged, ("shipping_refused", reason)]
        case _:
            return [(_STEPS[change.after], reason)]
