"""What happens in a run, drawn from a seed: customers, faults, and the chance of faults in calls."""

import random
from dataclasses import dataclass, replace
from enum import StrEnum

from shop_lab.world.customer_plan import Customer, Intent, plan_customer

CALM_AT = 12.0
"""No fault begins or lasts beyond this time, in seconds from the start of the run."""

PRODUCTS = ("bowl", "kettle", "mug", "pan", "plate", "spoon")
CHECKOUTS = ("checkout-1", "checkout-2")
PROCESSES = (*CHECKOUTS, "payment", "shipping", "cart", "email")
DATABASES = ("checkout", "payment", "shipping")
REFUSAL_KINDS = ("FailedPrecondition", "InvalidArgument", "Unimplemented", "NotFound", "Internal", "ResourceExhausted")
EFFECTS = (
    "/shop.ShippingService/ShipOrder",
    "/shop.PaymentService/Charge",
    "/shop.internal.PaymentLedger/ResolveOrFence",
    "/shop.internal.PaymentLedger/Void",
    "/shop.internal.ShipmentManifest/ResolveOrFence",
    "/shop.internal.Confirmations/AcceptConfirmations",
    "/shop.EmailService/SendOrderConfirmation",
    "/shop.CartService/EmptyCart",
    "/shop.internal.OrderedCart/RemoveAllOrdered",
    "/shop.internal.OrderedCart/RemoveOrdered",
)
_LATEST_START, _LONGEST_DELAY = 3.0, 8.0
_CLOCK_JUMP_SHARE = 0.25
_CLOCK_JUMP_SECONDS = (3_600.0, 48 * 3_600.0)


class Fate(StrEnum):
    """What may happen to a call."""

    LOSE_REQUEST = "lose_request"
    LOSE_REPLY = "lose_reply"
    DOUBLE_REQUEST = "double_request"
    DELAY_REQUEST = "delay_request"
    DELAY_REPLY = "delay_reply"
    KILL_CALLEE = "kill_callee"
    """The process that serves the call dies after the call took effect, before it can reply."""
    KILL_CALLER = "kill_caller"
    """The process that calls dies when the call has taken effect."""


class Dialect(StrEnum):
    """The database of checkout's journal."""

    SQLITE = "sqlite"
    POSTGRES = "postgres"


class ProcessFaultKind(StrEnum):
    """What happens to a process."""

    KILL = "kill"
    PAUSE = "pause"
    STOP = "stop"


@dataclass(frozen=True, slots=True)
class ProcessFault:
    """A process is killed or stopped, and restarted after so many seconds; or it is paused for so long."""

    at: float
    process: str
    kind: ProcessFaultKind
    seconds: float


@dataclass(frozen=True, slots=True)
class Outage:
    """A database refuses connections."""

    at: float
    database: str
    seconds: float


@dataclass(frozen=True, slots=True)
class Refusals:
    """A peer refuses all calls of one method with one kind of error, whatever it did before."""

    at: float
    path: str
    kind: str
    seconds: float


@dataclass(frozen=True, slots=True)
class Slowness:
    """All calls of one method take up to `delay` longer, each a time of its own."""

    at: float
    path: str
    delay: float
    seconds: float


@dataclass(frozen=True, slots=True)
class LostCommits:
    """The journal loses its last commits: with a restart of checkout (a back-up), or without one (a failover)."""

    at: float
    count: int
    restart: bool


@dataclass(frozen=True, slots=True)
class ClockJump:
    """The wall clock of a database's machine is set forward, or back by negative seconds."""

    at: float
    database: str
    seconds: float


Fault = ProcessFault | Outage | Refusals | Slowness | LostCommits | ClockJump


@dataclass(frozen=True, slots=True)
class CallFault:
    """The fate of one call, by its name."""

    call: str
    fate: Fate


@dataclass(frozen=True, slots=True)
class Plan:
    """A whole run.

    Attributes:
        call_fault_rate: share of the calls that meet one of `fates`.
        call_faults: replaces the random ones, to replay a run with some of its faults only.
        slow_rate: share of the steps of a database that take up to a second.
        lost_reply_rate: share of the commits whose confirmation is lost with the connection.
        retention: orders are deleted seconds after they were refused or abandoned.
    """

    seed: int
    dialect: Dialect
    customers: tuple[Customer, ...]
    faults: tuple[Fault, ...]
    fates: tuple[Fate, ...]
    call_fault_rate: float
    slow_rate: float
    lost_reply_rate: float
    retention: bool
    call_faults: tuple[CallFault, ...] | None = None


def plan(seed: int) -> Plan:
    """Plan a run. Each plan has a random subset of the kinds of faults: some bugs hide when all of them occur."""
    rng = random.Random(f"plan {seed}")  # noqa: S311 - a schedule, not a secret
    faults: list[Fault] = []
    if rng.random() < 0.6:
        faults += [_process_fault(rng) for _ in range(rng.randint(1, 6))]
    if rng.random() < 0.25:
        faults.append(Outage(rng.uniform(0, 6), rng.choice(DATABASES), rng.uniform(0.1, 6)))
    if rng.random() < 0.25:
        slow = [Slowness(0.0, path, rng.uniform(0.5, 8), CALM_AT) for path in rng.sample(EFFECTS, rng.randint(1, 2))]
        faults += slow
    if rng.random() < 0.4:
        faults += [_refusals(rng) for _ in range(rng.randint(1, 2))]
    if rng.random() < 0.2:
        faults.append(LostCommits(rng.uniform(0.2, 8), rng.randint(1, 6), rng.random() < 0.5))
    faults += _clock_jumps(seed)
    return Plan(
        seed=seed,
        dialect=rng.choice(list(Dialect)),
        customers=tuple(_customer(rng, index) for index in range(rng.randint(1, 4))),
        faults=tuple(sorted(faults, key=lambda fault: fault.at)),
        fates=tuple(rng.sample(list(Fate), rng.randint(1, len(Fate)))),
        call_fault_rate=rng.choice((0.0, 0.02, 0.05, 0.1, 0.3)),
        slow_rate=rng.choice((0.0, 0.02, 0.1)),
        lost_reply_rate=rng.choice((0.0, 0.0, 0.02)),
        retention=rng.random() < 0.4,
    )


def intents_of(planned: Plan) -> list[Intent]:
    """Return all orders that customers intend to place."""
    return [intent for customer in planned.customers for intent in customer.intents]


def _process_fault(rng: random.Random) -> ProcessFault:
    kind = rng.choice([ProcessFaultKind.KILL, ProcessFaultKind.KILL, ProcessFaultKind.PAUSE, ProcessFaultKind.STOP])
    seconds = rng.uniform(1, 6) if kind is ProcessFaultKind.PAUSE else rng.uniform(0.05, 2)
    process = rng.choice(CHECKOUTS if rng.random() < 0.6 else PROCESSES)
    return ProcessFault(rng.uniform(0, CALM_AT - 6), process, kind, seconds)


def _refusals(rng: random.Random) -> Refusals:
    # Shipping is refused most often: only there a charge has already been made.
    path = rng.choice((*EFFECTS, EFFECTS[0], EFFECTS[0]))
    return Refusals(rng.uniform(0, 4), path, rng.choice(REFUSAL_KINDS), rng.uniform(0.05, 5))


def _clock_jumps(seed: int) -> list[ClockJump]:
    # A random source of its own: without these faults the rest of the plan is the same.
    rng = random.Random(f"clocks {seed}")  # noqa: S311 - a schedule, not a secret
    if rng.random() > _CLOCK_JUMP_SHARE:
        return []
    # Leases and due times are those of the journal's clock, so that one jumps most often.
    databases = ("checkout", *DATABASES)
    return [
        ClockJump(rng.uniform(0, 6), rng.choice(databases), rng.choice((-1, 1)) * rng.uniform(*_CLOCK_JUMP_SECONDS))
        for _ in range(rng.randint(1, 3))
    ]


def _customer(rng: random.Random, index: int) -> Customer:
    planned = plan_customer(rng, 10 * index, f"user-{index}", PRODUCTS, most_orders=3, longest_delay=_LONGEST_DELAY)
    (first, *others), *devices = planned.devices
    first = replace(first, after_seconds=rng.uniform(0, _LATEST_START))
    return Customer(planned.user_id, ((first, *others), *devices))
