"""Simulates runs for tests/lab/src/shop_lab/model: the steps of each order, as actions of the model."""

import random
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, TypeAlias

from shop_lab.simulation import services
from shop_lab.simulation.history import OrderHistory, Tables
from shop_lab.simulation.plan import LostCommits, Plan, Scope, intents_of, plan
from shop_lab.simulation.projection import Projection, Replay, Unprojectable
from shop_lab.simulation.recording import Began, Recorder
from shop_lab.simulation.run import run
from shop_lab.world.ledgers import card_hmac

Run: TypeAlias = list[dict[str, Any]]
"""The steps of one order: each with action, task, request and price, and a view of what can be observed after it."""

# In the model payment and shipping have their internal services all the time, payment refuses a charge only with an
# entry, and requests of one cart without a key have one scope.
SCOPE = Scope(
    keyed_rivals=False,
    refused_paths=(
        "/shop.ShippingService/ShipOrder",
        "/shop.internal.Confirmations/AcceptConfirmations",
        "/shop.EmailService/SendOrderConfirmation",
    ),
)


def record_orders(seeds: range) -> tuple[list[Run], list[str]]:
    """Return the steps of every order of the seeds' runs, and why others have no counterpart in the model."""
    runs: list[Run] = []
    left_out: list[str] = []
    for seed in seeds:
        found, reasons = steps_of_orders(_plan(seed))
        runs += found
        left_out += reasons
    return runs, left_out


def _plan(seed: int) -> Plan:
    """Plan a run. In every third one commits are lost while an order is being placed, which is rare otherwise."""
    planned = plan(seed, SCOPE)
    if seed % 3:
        return planned
    rng = random.Random(f"loss {seed}")  # noqa: S311 - a schedule, not a secret
    begins_at = rng.choice(planned.shoppers).visits[0].at
    loss = LostCommits(begins_at + rng.uniform(0.005, 0.06), rng.randint(1, 3), restart=False)
    others = [fault for fault in planned.faults if not isinstance(fault, LostCommits)]
    return replace(planned, faults=(*others, loss))


def steps_of_orders(planned: Plan) -> tuple[list[Run], list[str]]:
    """Return the steps of every order of one plan, and why others have no counterpart in the model."""
    runs: list[Run] = []
    left_out: list[str] = []
    for history in _histories(planned):
        try:
            runs.append(list(Replay(history, Projection(history).actions).steps()))
        except Unprojectable as error:
            left_out.append(f"seed {planned.seed}, order {history.order_id}: {error}")
    return runs, left_out


def _histories(planned: Plan) -> Iterator[OrderHistory]:
    recorder = Recorder()
    run(planned, recorder)
    columns = {name: table.columns for schema in services.schemas() for name, table in schema.tables.items()}
    tables = Tables(_numbers(planned), columns)
    order_ids = {event.entry.order_id for event in recorder.events if isinstance(event, Began)}
    for order_id in sorted(order_ids):
        yield OrderHistory(order_id, recorder.events, tables)


def _numbers(planned: Plan) -> dict[Any, int]:
    numbers: dict[Any, int] = {}
    for intent in intents_of(planned):
        numbers |= dict.fromkeys(
            (intent.email, intent.street, card_hmac(intent, services.HMAC_KEY.encode())), intent.number
        )
    return numbers
