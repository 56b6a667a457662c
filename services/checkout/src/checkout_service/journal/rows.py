"""Converts between the records in `ports` and the rows of the journal's tables."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

import orjson
import structlog

from chassis.errors import FieldViolation
from chassis.sql.database import Row
from chassis.values.paging import MAX_SECONDS, is_time
from checkout_service.domain import CARD_NUMBER, REFUSED, Refusal, State, Transition
from checkout_service.journal import snapshots
from checkout_service.ports import EMAIL, EMPTY_CART, Entry, OutboxItem

log = structlog.get_logger()

_STEPS = {
    State.SHIPPED: "shipped",
    State.VOIDING: "shipping_refused",
    State.DECLINED: "declined",
    State.ABANDONED: "fenced",
    State.VOIDED: "voided",
    State.NEEDS_REFUND: "void_refused",
    State.NEEDS_REVIEW: "review_needed",
    State.CHARGING: "next_attempt",
    State.SETTLING: "next_attempt",
}

_SENT_STEPS = {EMAIL: "email_queued", EMPTY_CART: "cart_emptied"}

# Columns that are copied to an entry unchanged.
_TEXTS = ("scope", "fingerprint", "owner", "transaction_id", "tracking_id", "traceparent")
_COLUMNS = dict.fromkeys(_TEXTS, str) | dict.fromkeys(("attempt", "epoch", "failures"), int)
_TIMES = ("created_at", "updated_at")
_CONTENT = dict.fromkeys(("order_id", "user_id", "email", "cart_etag", "reason", "refusal"), str)
_TYPES: Mapping[str, type] = _COLUMNS | _CONTENT | {"snapshot": bytes}


def claim_to_row(held: Entry) -> dict[str, Any]:
    return {"order_id": held.order_id, "attempt": held.attempt, "epoch": held.epoch, "owner": held.owner}


def new_order_to_row(new: Entry) -> dict[str, Any]:
    order, total = new.order, new.order.total
    return {
        **claim_to_row(new),
        "scope": new.scope,
        "fingerprint": new.fingerprint,
        "user_id": order.user_id,
        "email": order.email,
        "cart_etag": order.cart_generation,  # the column got its name before carts had generations
        "currency_code": total.currency_code,
        "total_units": total.units,
        "total_nanos": total.nanos,
        "traceparent": new.traceparent,
        "snapshot": snapshots.dump(order),
    }


def transition_to_row(transition: Transition) -> dict[str, Any]:
    refusal, refused_as = transition.refusal, transition.refused_as
    # Store `refused_as` inside the refusal, so that an older release fails to decode the order and doesn't charge it.
    pending = {"refused_as": refused_as} if refused_as else {}
    return {
        "before": transition.before,
        "after": transition.after,
        "transaction_id": transition.transaction_id,
        "tracking_id": transition.tracking_id,
        "refusal": orjson.dumps(asdict(refusal) | pending).decode() if refusal else "",
        "reason": refusal.reason if refusal else transition.step.upper(),
    }


def item_to_row(item: OutboxItem) -> dict[str, Any]:
    """Return an item's row, with the step that sending it adds to the order's history."""
    step = _SENT_STEPS[item.kind]
    return {"order_id": item.entry.order_id, "kind": item.kind, "failures": item.failures, "step": step}


def entry_from_row(row: Row) -> Entry:
    """Decode a row. If it can't be decoded, return an entry whose `unreadable` holds the stored text."""
    refusal: Refusal | None = None
    refused_as: State | None = None
    unreadable, recorded_total = "", snapshots.recorded_total(row)
    typed = {column: _typed(row[column], type_) for column, type_ in _TYPES.items()}
    typed |= {column: row[column] if is_time(row[column]) else MAX_SECONDS for column in _TIMES}
    try:
        state, (refusal, refused_as) = State(row["state"]), _load_refusal(row["refusal"])
        _require_equal(row, typed)
        order = snapshots.load(row)
    except Exception:
        log.exception("order cannot be decoded", order_id=row["order_id"])
        state = State(row["state"]) if row["state"] in State.__members__ else State.NEEDS_REVIEW
        order, stored = snapshots.load_columns(typed, recorded_total), row["snapshot"]
        text = stored.decode(errors="replace") if isinstance(stored, bytes) else str(stored)
        unreadable = CARD_NUMBER.sub("…", f"{row['state']} {row['refusal']} {text}")
    return Entry(
        **{column: typed[column] for column in (*_COLUMNS, *_TIMES)},
        order=order,
        state=state,
        leased=bool(row["leased"]),
        reason=refusal.reason if refusal and state in REFUSED else typed["reason"],
        refusal=refusal,
        refused_as=refused_as,
        stuck=bool(row["stuck"]) or bool(unreadable),
        unreadable=unreadable,
        recorded_total=recorded_total,
    )


def readable_entries(rows: Iterable[Row]) -> list[Entry]:
    """Decode rows to entries. Skip rows that can't be decoded, so that they don't block the other rows.

    Keep orders that an operator is settling: the decision can be carried out without the order's content.
    """
    entries = map(entry_from_row, rows)
    return [entry for entry in entries if not entry.unreadable or (entry.state is State.SETTLING and entry.refusal)]


def first_entry(rows: Sequence[Row]) -> Entry | None:
    return entry_from_row(rows[0]) if rows else None


def steps_of(transition: Transition) -> list[tuple[str, str]]:
    """Return the (step, detail) pairs that a transition adds to the order's history."""
    if transition.step:
        return [(transition.step, transition.detail)]
    reason = transition.refusal.reason if transition.refusal else ""
    charged = [("charged", transition.transaction_id)] if transition.transaction_id else []
    detail = transition.tracking_id if transition.after is State.SHIPPED else reason
    return [*charged, (_STEPS[transition.after], detail)]


def _typed(value: Any, type_: type) -> Any:
    """Return a value, or an empty one if it has another type or doesn't fit the wire: SQLite columns hold any value."""
    return value if isinstance(value, type_) and (not isinstance(value, int) or abs(value) < 2**31) else type_()


def _require_equal(row: Row, typed: Mapping[str, object]) -> None:
    if wrong := [column for column, value in typed.items() if row[column] != value]:
        raise ValueError(f"of a wrong type, or no time: {', '.join(wrong)}")


def _load_refusal(text: str) -> tuple[Refusal | None, State | None]:
    if not text:
        return None, None
    fields = orjson.loads(text)
    refused_as = fields.pop("refused_as", None)
    violations = tuple(FieldViolation(**violation) for violation in fields.pop("violations"))
    return Refusal(**fields, violations=violations), State(refused_as) if refused_as else None
