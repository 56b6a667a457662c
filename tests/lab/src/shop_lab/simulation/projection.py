"""Projects recorded runs onto the model of orders: each order's steps as actions of Orders.tla in shop_lab/model.

In the model a call to payment or shipping is one step. In a run it takes time, so its step is placed where it took
effect: at the commit of the ledger or the manifest. A call without effect is placed at a moment at which its key had
the entry that it reports. A call in doubt is a `Delay`, and a later effect of it a `Deliver`.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from checkout_service import commands
from checkout_service.commands import Charged, Fenced, InDoubt, KeyReused, Refused, Released, Shipped
from checkout_service.domain import OPEN, RELEASED_CART, RESTORABLE, charge_key, ship_key
from shop_lab.simulation.history import NEVER, Call, Content, OrderHistory, PeerEntry, Row, Worker
from shop_lab.world.saga_peers import PEER_COMMANDS

REQUESTS = ("ann", "ben", "cid")
MAX_PRICES = 3
MAX_ATTEMPTS = 4
MAX_WORKERS = 4
UNKNOWN = ("unknown", "")
IDLE = ("idle", "")

# By command and outcome: the entries of the key that give this outcome without any effect.
_READ = {
    (commands.Charge, Charged): {"CHARGED"},
    (commands.Charge, Refused): {"DECLINED"},
    (commands.Charge, Released): {"VOIDED"},
    (commands.Charge, Fenced): {"FENCED"},
    (commands.Charge, KeyReused): {"CHARGED", "DECLINED", "VOIDED"},
    (commands.Resolve, Charged): {"CHARGED"},
    (commands.Resolve, KeyReused): {"CHARGED"},
    (commands.Resolve, Refused): {"DECLINED"},
    (commands.Resolve, Released): {"VOIDED"},
    (commands.Resolve, Fenced): {"FENCED"},
    (commands.Void, Released): {"VOIDED"},
    (commands.Void, Refused): {"NONE", "DECLINED", "FENCED"},
    (commands.Ship, Shipped): {"SHIPPED"},
    (commands.Ship, KeyReused): {"SHIPPED"},
    (commands.Ship, Refused): {"NONE", "SHIPPED"},
    (commands.Ship, Fenced): {"FENCED"},
    (commands.ResolveShipment, Shipped): {"SHIPPED"},
    (commands.ResolveShipment, Fenced): {"FENCED"},
}  # fmt: skip
# By command and new entry: the outcome of the call that made it.
_MADE = {
    (commands.Charge, "CHARGED"): Charged,
    (commands.Charge, "DECLINED"): Refused,
    (commands.Resolve, "FENCED"): Fenced,
    (commands.Void, "VOIDED"): Released,
    (commands.Ship, "SHIPPED"): Shipped,
    (commands.ResolveShipment, "FENCED"): Fenced,
}  # fmt: skip


class Unprojectable(Exception):
    """Something happened that the model does not have."""


@dataclass(frozen=True, slots=True, order=True)
class Action:
    """A step of the model, at an event of the run; `place` orders the steps of one event.

    Attributes:
        worker: its owner in the journal; empty for a step of none.
        following: what the worker does next: UNKNOWN, or IDLE at its end.
    """

    at: int
    place: int
    name: str = field(compare=False)
    worker: str = field(compare=False, default="")
    following: tuple[str, str] = field(compare=False, default=IDLE)


class Projection:
    """The actions of one order."""

    def __init__(self, history: OrderHistory) -> None:
        self._history = history
        self._workers = list(history.workers.values())
        self._changes = {at: (before, after) for at, before, after in history.row.changes()}
        self.actions: list[Action] = []
        self._add_losses()
        self._workers = [worker for worker in self._workers if self._add_start(worker)]
        for worker in self._workers:
            self._add_updates(worker)
        self._add_peer_calls()
        self._add_other_claims()
        self._add_deaths()
        self.actions.sort()

    def _add(self, at: int, place: int, name: str, worker: Worker, following: Call | None) -> None:
        self.actions.append(Action(at, place, name, worker.owner, following.observed() if following else UNKNOWN))

    def _take_change(self, owner: str, begin: int, end: int, *, inserted: bool) -> int | None:
        """Return the first change of the row between two events that the owner made, and mark it as explained."""
        for at, (before, after) in self._changes.items():
            if begin < at < end and after is not None and after.owner == owner and (before is None) is inserted:
                del self._changes[at]
                return at
        return None

    def _add_losses(self) -> None:
        for at, since in self._history.losses:
            del self._changes[at]
            if since >= 0:
                self.actions.append(Action(since, 4, "Replicate"))
            self.actions.append(Action(at, 0, "FailOver"))

    def _add_start(self, worker: Worker) -> bool:
        """Add the step by which a worker got the order. Return False if it did not."""
        if worker.entry.is_new:
            insert = worker.calls[0]
            at = self._take_change(worker.owner, insert.issued, insert.returned, inserted=True)
            if at is None:
                return False
            insert.taken = True
            self._add(at, 0, "Insert", worker, worker.after(insert))
            return True
        claims = [at for at, change in self._changes.items() if at < worker.began and _is_claim(change, worker.owner)]
        if not claims:
            raise Unprojectable("a worker without a claim")
        before, _ = self._changes.pop(claims[-1])
        if before is not None and before.state in RELEASED_CART:
            name = "reopen"
        else:
            name = "take_over" if worker.has_card else "claim_expired"
        self._add(claims[-1], 0, name, worker, worker.calls[0] if worker.calls else None)
        return True

    def _add_updates(self, worker: Worker) -> None:
        for call in worker.calls:
            if not isinstance(call.command, commands.Update):
                continue
            transition = call.command.transition
            restore = worker.after(call)
            if restore is not None and isinstance(restore.command, commands.Restore):
                restored = self._take_change(worker.owner, call.issued, restore.returned, inserted=True)
                if restored is not None:
                    self._add(restored, 0, "Restore", worker, worker.after(restore))
                if restored is not None or restore.result is None:
                    continue
                call.returned = restore.returned
            at = self._take_change(worker.owner, call.issued, call.returned, inserted=False)
            if at is not None:
                following = worker.after(call)
                self._add(at, 0, "Update", worker, following)
                if transition.after not in OPEN:
                    self.actions[-1] = Action(at, 0, "Update", worker.owner)
            elif call.result is False:
                at = self._find_superseded(worker, call)
                self.actions.append(Action(at, 2, "Update", worker.owner))
            elif call.result:
                raise Unprojectable("an update without a commit")

    def _find_superseded(self, worker: Worker, call: Call) -> int:
        """Return a moment of the call at which the worker did not hold the order in the state before the update."""
        transition = call.command.transition
        for at, row in self._history.row.latest_first(call.issued, call.returned):
            if row is None:
                if not worker.entry.is_new or transition.after not in RESTORABLE:
                    return at
            elif (row.owner, row.attempt, row.state) != (worker.owner, call.attempt, transition.before):
                return at
        raise Unprojectable("an update was rejected although the worker held the order")

    def _add_peer_calls(self) -> None:
        calls = [(worker, call) for worker in self._workers for call in worker.calls]
        calls = [(worker, call) for worker, call in calls if isinstance(call.command, PEER_COMMANDS)]
        for worker, call in calls:
            if call.result is None or isinstance(call.result, InDoubt):
                self._add(call.issued, 1, "Delay", worker, call)
        for versions in (*self._history.charges.values(), *self._history.shipments.values()):
            for at, _, after in versions.changes():
                self._add_effect(at, after, [each for each in calls if self._history.entries_of(each[1]) is versions])
        for worker, call in calls:
            if call.is_certain and not call.taken:
                self._add(self._find_read(call), 2, call.name, worker, worker.after(call))

    def _add_effect(self, at: int, entry: PeerEntry, calls: list[tuple[Worker, Call]]) -> None:
        """Add the step that made an entry: a call during which it was made, or the delivery of a delayed one."""
        calls = [each for each in calls if (type(each[1].command), entry.state) in _MADE and each[1].issued < at]
        for worker, call in calls:
            made = isinstance(call.result, _MADE[type(call.command), entry.state])
            existed = isinstance(call.result, Fenced) and call.result.existing
            if made and not existed and at < call.returned and not call.taken:
                call.taken = True
                self._add(at, 0, call.name, worker, worker.after(call))
                return
        if not calls:
            raise Unprojectable("an entry without a call")
        if all(call.is_certain for _, call in calls):
            worker, call = calls[0]
            self._add(call.issued, 1, "Delay", worker, call)
        self.actions.append(Action(at, 0, "Deliver"))

    def _find_read(self, call: Call) -> int:
        """Return a moment of a call without effect at which its key had the entry that it reports."""
        states = _READ.get((type(call.command), type(call.result)), set())
        if isinstance(call.command, commands.Resolve) and isinstance(call.result, Fenced) and not call.result.existing:
            states = set()
        for at, entry in self._history.entries_of(call).latest_first(call.issued, call.returned):
            if entry.state in states:
                return at
        raise Unprojectable(f"{call.name} returned {call.result}, which its peer never had")

    def _add_other_claims(self) -> None:
        """Add claims of workers that died before they began."""
        for at, (before, after) in self._changes.items():
            if before is None or after is None or before.owner == after.owner:
                raise Unprojectable("a change of the row without a command")
            name = "reopen" if before.state in RELEASED_CART else "claim_expired"
            self.actions += [Action(at, 0, name, after.owner, UNKNOWN), Action(at, 3, "Die", after.owner)]

    def _add_deaths(self) -> None:
        for worker in self._workers:
            own = [action for action in self.actions if action.worker == worker.owner]
            if max(own).following != IDLE and worker.ended != NEVER:
                self.actions.append(Action(max(worker.ended, max(own).at), 3, "Die", worker.owner))


def _is_claim(change: tuple[Row | None, Row | None], owner: str) -> bool:
    before, after = change
    return after is not None and after.owner == owner and (before is None or before.owner != owner)


class Replay:
    """The steps of one order with what can be observed after each, in the words of the model."""

    def __init__(self, history: OrderHistory, actions: list[Action]) -> None:
        self._history = history
        self._actions = actions
        self._requests: dict[int, str] = {}
        self._prices: dict[tuple[Any, ...], int] = {}
        self._tasks: dict[str, str] = {}
        self._commands: dict[str, tuple[str, str]] = {}

    def steps(self) -> Iterator[dict[str, Any]]:
        """Yield the steps up to the first one with too many attempts."""
        for action in self._actions:
            row = self._history.row.at(action.at)
            task = self._take(action)
            if row is not None and row.attempt > MAX_ATTEMPTS:
                return
            content = row.content if row and action.name in {"Insert", "reopen", "take_over"} else None
            request, price = ("ann", 1) if content is None else (self._request(content), self._price(content))
            step = {"action": action.name, "task": task, "request": request, "price": price}
            yield step | {"view": self._view(action.at, row)}

    def _take(self, action: Action) -> str:
        """Return the model's task that takes an action: one that is free, for the first action of a worker."""
        if not action.worker:
            return "w1"
        if action.worker not in self._tasks:
            free = [f"w{n}" for n in range(1, MAX_WORKERS + 1) if f"w{n}" not in self._tasks.values()]
            if not free:
                raise Unprojectable("too many workers")
            self._tasks[action.worker] = free[0]
        task = self._tasks[action.worker]
        self._commands[task] = action.following
        if action.following == IDLE:
            del self._tasks[action.worker]
        return task

    def _view(self, at: int, row: Row | None) -> dict[str, Any]:
        order_id, attempts = self._history.order_id, range(1, MAX_ATTEMPTS + 1)
        charges = [self._history.charges[charge_key(order_id, attempt)].at(at) for attempt in attempts]
        shipments = [self._history.shipments[ship_key(order_id, attempt)].at(at) for attempt in attempts]
        return {
            "row": self._row(row) if row else (),
            "charges": [self._charge(entry) for entry in charges],
            "shipments": [self._request(entry.content) if entry.content else entry.state for entry in shipments],
            "tasks": [self._commands.get(f"w{n}", IDLE) for n in range(1, MAX_WORKERS + 1)],
        }

    def _row(self, row: Row) -> tuple[Any, ...]:
        owner = self._tasks.get(row.owner, "none")
        return (row.state, row.attempt, owner, self._request(row.content), self._price(row.content), row.pending)

    def _charge(self, entry: PeerEntry) -> tuple[Any, ...]:
        if entry.content is None:
            return (entry.state, "none", 0)
        return (entry.state, self._request(entry.content), self._price(entry.content))

    def _request(self, content: Content) -> str:
        if content.request not in self._requests and len(self._requests) == len(REQUESTS):
            raise Unprojectable("too many requests")
        return self._requests.setdefault(content.request, REQUESTS[len(self._requests) % len(REQUESTS)])

    def _price(self, content: Content) -> int:
        if content.price not in self._prices and len(self._prices) == MAX_PRICES:
            raise Unprojectable("too many prices")
        return self._prices.setdefault(content.price, len(self._prices) + 1)
