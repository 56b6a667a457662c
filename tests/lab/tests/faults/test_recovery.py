"""The means of recovery survive faults of their own: the recovery loop, the fence, and the release of a charge."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace

import pytest

from checkout_service import failpoints as checkout
from payment_service import failpoints as payment
from shop_kit.waiting import wait_until
from shop_lab.world.customer_plan import Intent
from shop_lab.world.evidence import ClientOutcome
from shop_lab.world.fault_testbed import FaultTestbed, failpoint, outcomes_of, process_with
from shop_lab.world.refusing_peers import serve_refusing_peers


def with_every_action(*points: str) -> pytest.MarkDecorator:
    """Run a test with every kind of fault at every point, of which `make test` has the deaths after a step."""
    return pytest.mark.parametrize(
        ("point", "action"),
        [
            pytest.param(point, action, marks=() if (point[-6:], action) == (".after", "kill") else pytest.mark.long)
            for point in points
            for action in ("kill", "hang", "error")
        ],
    )


@with_every_action(checkout.TAKEN_OVER, *checkout.RESOLVE, *payment.RESOLVE_OR_FENCE)
async def test_recovery_survives_a_fault(testbed: FaultTestbed, point: str, action: str) -> None:
    """A checkout dies with charged orders whose customers give up; the process that recovers them has the fault."""
    dying, faulty = "checkout-1", "payment" if point in payment.FAILPOINTS else "checkout-2"
    await testbed.configure(
        {dying: failpoint("checkout.charge.after", "hang", times=2), faulty: failpoint(point, action, times=2)}
    )
    intents = testbed.new_intent(keyed=True, max_tries=1), testbed.new_intent(keyed=False, max_tries=1)
    async with testbed.restarted_on_exit(faulty):
        ordering = asyncio.create_task(testbed.place_orders(*intents))
        await wait_until(lambda: are_charged(testbed, intents))
        testbed.shop.processes[dying].kill()
        results = await ordering
        assert await testbed.violations(results) == []
    assert outcomes_of(results) == [ClientOutcome.UNKNOWN] * 2
    assert [testbed.capture_count(intent) for intent in intents] == [1, 1]


def are_charged(testbed: FaultTestbed, intents: Sequence[Intent]) -> bool:
    return all(testbed.capture_count(intent) == 1 for intent in intents)


@with_every_action(*payment.RESOLVE_OR_FENCE)
async def test_a_fence_survives_a_fault(testbed: FaultTestbed, point: str, action: str) -> None:
    """A checkout dies before it charges: the charge key is fenced, and a retry is charged under another one."""
    await testbed.configure(
        {"checkout-1": failpoint("checkout.charge.before", "kill"), "payment": failpoint(point, action)}
    )
    intent = testbed.new_intent(max_tries=1)
    async with testbed.restarted_on_exit("payment"):
        results = await testbed.place_orders(intent)
        assert await testbed.violations(results) == []
    assert testbed.capture_count(intent) == 0
    await testbed.configure()
    results = await testbed.place_orders(replace(intent, max_tries=None))
    assert outcomes_of(results) == [ClientOutcome.PLACED]
    assert await testbed.violations(results) == []


@with_every_action(*payment.VOID, *checkout.VOID)
async def test_a_charge_is_released_after_shipping_refuses_despite_a_fault(
    testbed: FaultTestbed, point: str, action: str
) -> None:
    faulty = process_with(point)
    async with serve_refusing_peers() as peers:
        shipping = {"SHIPPING_ADDR": peers.address}
        variables = {"payment": {}, "checkout-1": shipping, "checkout-2": shipping}
        await testbed.configure({**variables, faulty: {**variables[faulty], **failpoint(point, action)}})
        intent = testbed.new_intent()
        # Shipping refuses after the restart too: before checkout records the refusal, it is free to ship after all.
        async with testbed.restarted_on_exit(faulty, **variables[faulty]):
            results = await testbed.place_orders(intent)
            await testbed.evidence(results)
    assert outcomes_of(results) == [ClientOutcome.REFUSED]
    assert [charge.state for charge in testbed.charges(intent)] == ["VOIDED"]
