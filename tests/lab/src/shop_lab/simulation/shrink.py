"""Shrinks a failing plan: removes customers and faults as long as the run still fails in the same way."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TypeVar

from shop_lab.simulation.plan import Plan
from shop_lab.simulation.run import Report, run
from shop_lab.world.customer_plan import Customer

T = TypeVar("T")

MAX_RUNS = 400


def shrink(failed: Report) -> Report:
    """Return the report of a smaller plan that violates one of the same invariants."""
    names = _violated(failed)
    runs = 0

    def fails(plan: Plan) -> Report | None:
        nonlocal runs
        runs += 1
        report = run(plan) if runs <= MAX_RUNS else None
        return report if report is not None and _violated(report) & names else None

    smallest = fails(replace(failed.plan, call_faults=failed.injected)) or failed
    progress = True
    while progress:
        progress = False
        for smaller in _smaller(smallest.plan):
            report = fails(smaller)
            if report is not None:
                smallest, progress = report, True
                break
    return smallest


def _violated(report: Report) -> set[str]:
    return {violation.partition(":")[0] for violation in report.violations}


def _smaller(plan: Plan) -> Iterator[Plan]:
    """Yield plans that lack something, the largest omissions first."""
    yield from (replace(plan, customers=left) for left in _without_some(plan.customers) if left)
    yield from (replace(plan, faults=left) for left in _without_some(plan.faults))
    yield from (replace(plan, call_faults=left) for left in _without_some(plan.call_faults or ()))
    if plan.slow_rate:
        yield replace(plan, slow_rate=0.0)
    if plan.lost_reply_rate:
        yield replace(plan, lost_reply_rate=0.0)
    for index, customer in enumerate(plan.customers):
        for others in _without_some(customer.devices[1:]):
            fewer = Customer(customer.user_id, (customer.devices[0], *others))
            yield replace(plan, customers=(*plan.customers[:index], fewer, *plan.customers[index + 1 :]))


def _without_some(items: Sequence[T]) -> Iterator[tuple[T, ...]]:
    """Yield the items without each half, each quarter ... and each single one."""
    size = len(items)
    while size > 1 or (size == 1 and items):
        size = (size + 1) // 2 if size > 1 else 0
        step = max(size, 1)
        for start in range(0, len(items), step):
            yield (*items[:start], *items[start + step :])
        if step == 1:
            return
