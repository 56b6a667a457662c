"""Whether a shop is as it should be in an incident: its invariants, and the alerts that fired."""

from collections.abc import Iterator, Mapping, Sequence

from chassis.errors import DomainError
from checkout_service.reconciliation.rules import Kind
from shop_lab.incidents.catalogue import Expected
from shop_lab.incidents.readings import Readings
from shop_lab.incidents.record import Firing, Verdict

MAX_FAILED_SHARE = 0.05
INVARIANTS: Mapping[str, frozenset[Kind]] = {
    "I1": frozenset({Kind.CHARGED_TWICE}),
    "I2": frozenset({Kind.CHARGED_NOT_SHIPPED, Kind.SHIPPED_TWICE, Kind.OPEN_TOO_LONG}),
    "I3": frozenset({Kind.SHIPPED_NOT_CHARGED, Kind.NOT_CHARGED}),
    "I4": frozenset({Kind.NOT_MAILED, Kind.MAIL_DIFFERS, Kind.REFUSED_BUT_MAILED}),
    "I5": frozenset({Kind.UNKNOWN_ORDER, Kind.ATTEMPT_DIFFERS, Kind.CHARGE_DIFFERS, Kind.NOT_SETTLED, Kind.UNREADABLE}),
    "I6": frozenset({Kind.REFUSED_BUT_CHARGED, Kind.REFUSED_BUT_SHIPPED}),
    "I7": frozenset({Kind.PARCEL_DIFFERS}),
    "I8": frozenset({Kind.AMOUNT_DIFFERS}),
}
"""The kinds of mismatches that violate each invariant of `world.invariants`. I9 is about customers, not records."""
SAFETY = frozenset({"I1", "I3", "I6", "I8"})
"""Invariants that hold during a fault as well; the others are promises for the time after it."""


def check_invariants(readings: Readings) -> dict[str, Verdict]:
    """Return whether each invariant holds now."""
    try:
        mismatches = readings.mismatches()
        found: dict[str, Verdict]
        found = {name: "violated" if kinds & mismatches else "holds" for name, kinds in INVARIANTS.items()}
    except DomainError:  # a fault may keep records from being read
        found = dict.fromkeys(INVARIANTS, "unknown")
    share = readings.failed_share()
    found["I9"] = "unknown" if share is None else "holds" if share <= MAX_FAILED_SHARE else "violated"
    return found


def alert_problems(expected: Expected, firings: Sequence[Firing], began: float) -> Iterator[str]:
    """Yield how the alerts differ from what a fault that began then should cause."""
    fired: dict[str, Firing] = {}
    for firing in sorted(firings, key=lambda firing: firing.began):
        fired.setdefault(firing.name, firing)
    if (name := next(iter(fired), "")) and name not in (expected.first, expected.page):
        yield f"the first alert is {name}, not {expected.first or 'none'}"
    if (name := expected.first) and name not in fired:
        yield f"{name} did not fire"
    elif name and (after := fired[name].began - began) > expected.within:
        yield f"{name} fired after {after:.0f} s, not within {expected.within:.0f} s"
    pages = sorted((firing.paged_at, firing.name) for firing in firings if firing.paged_at)
    paged = list(dict.fromkeys(name for _, name in pages))
    if (name := next(iter(paged), "")) != expected.page:
        yield f"the first page is {name or 'none'}, not {expected.page or 'none'}"
    explained = {expected.first, expected.page, *expected.may_fire}
    yield from (f"{name} paged" for name in sorted(set(paged[1:]) - explained))
    yield from (f"{name} fired" for name in sorted(set(expected.must_not_fire) & set(fired)))
