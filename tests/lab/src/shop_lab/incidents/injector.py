"""Injects faults and undoes them: the inverse of everything is saved before anything acts."""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress

from chassis.errors import DomainError
from shop_lab.incidents.catalogue import Fault
from shop_lab.incidents.local import Local
from shop_lab.incidents.mechanisms import MECHANISMS, Target
from shop_lab.incidents.state import Record
from shop_lab.incidents.targets import CannotAct, CannotRestore


def start(fault: Fault, target: Target, seconds: float) -> Record:
    """Inject a fault for a time. Return once all of it is injected, which cascades take their time for.

    Raise NoLaboratory, or CannotAct, and leave nothing behind, if a part of it cannot act.
    """
    target.require_laboratory()
    if isinstance(target, Local) and not fault.local:
        raise CannotAct(f"{fault.id} needs a shop on a cluster")
    with suppress(CannotRestore):  # the rest of another fault, which `stop` reports
        restore(target)
    record = Record(expires=time.time() + seconds)
    record.own()
    for injection in fault.injections:
        if injection.after >= seconds:
            raise CannotAct(f"{fault.id} takes {injection.after:g} s to unfold, longer than its {seconds:g} s")
        mechanism = MECHANISMS[injection.mechanism]
        inverse = mechanism.prepare(injection, target, record.token, seconds - injection.after)
        record.inverses.append({"mechanism": injection.mechanism, **inverse})
    if not fault.injections:
        return record
    target.save(record)
    try:
        target.guard(record)
        _act(fault, target, record)
    except BaseException:
        undo(record, target)
        raise
    return record


def _act(fault: Fault, target: Target, record: Record) -> None:
    started = time.monotonic()
    pairs = zip(fault.injections, record.inverses, strict=True)
    for injection, inverse in sorted(pairs, key=lambda pair: pair[0].after):
        time.sleep(max(0.0, started + injection.after - time.monotonic()))
        MECHANISMS[injection.mechanism].act(injection, target, inverse)


@contextmanager
def injected(fault: Fault, seconds: float, target: Target) -> Iterator[None]:
    """Inject a fault while in the context, at most so long. Raise CannotAct or CannotRestore."""
    record = start(fault, target, seconds)
    try:
        yield
    finally:
        undo(record, target)


def leave(record: Record, target: Target) -> None:
    """Let a fault outlast this process, until it expires."""
    record.owner = ""
    if record.inverses:
        target.save(record)


def undo(record: Record, target: Target) -> None:
    """Undo all that a record contains, and forget it. Raise CannotRestore if something is left."""
    left = []
    for inverse in reversed(record.inverses):
        try:
            MECHANISMS[inverse["mechanism"]].undo(target, inverse)
        except DomainError as error:
            left.append(error.message)
    if left:
        raise CannotRestore(f"not undone yet: {'; '.join(left)}")
    target.forget(record)


def restore(target: Target, *, everything: bool = False, tokens: Sequence[str] = ()) -> list[Record]:
    """Undo what has expired, what was abandoned and what has one of the tokens, or everything. Return what was undone.

    Raise CannotRestore if something is left, after all else was undone.
    """
    undone, left = [], []
    for record in target.records():
        if everything or record.token in tokens or record.abandoned or not record.seconds_left:
            try:
                undo(record, target)
                undone.append(record)
            except CannotRestore as error:
                left.append(error.message)
    if left:
        raise CannotRestore("; ".join(left))
    return undone
