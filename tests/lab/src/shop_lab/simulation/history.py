"""What a recorded run did with one order: its row, its entries at payment and shipping, and its workers' commands."""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, NamedTuple, TypeVar

import orjson

from checkout_service import commands
from checkout_service.commands import InDoubt, Refused, Unsupported
from checkout_service.domain import State, charge_key, ship_key
from checkout_service.ports import Entry
from shop_lab.simulation.disk import Change, Values
from shop_lab.simulation.recording import Began, Committed, Ended, Event, Issued, Lost, Returned

T = TypeVar("T")

_SHIPPING_COMMANDS = (commands.Ship, commands.ResolveShipment)
_NOT_MODELLED = (commands.Wait, commands.StartRemoval, commands.Send)
NEVER = 1 << 60


class Content(NamedTuple):
    """The number of a request, and its price as stored."""

    request: int
    price: tuple[Any, ...]


class Row(NamedTuple):
    """The part of an order's row that the model has."""

    state: State
    attempt: int
    owner: str
    content: Content
    pending: str


class PeerEntry(NamedTuple):
    """The entry of a key at payment or shipping; the price is empty at shipping."""

    state: str
    content: Content | None = None


NO_ENTRY = PeerEntry("NONE")


class Versions(Generic[T]):
    """The values that something had, by the events that changed them."""

    def __init__(self, first: T) -> None:
        self._at = [-1]
        self._values = [first]

    def add(self, at: int, value: T) -> None:
        if value != self._values[-1]:
            self._at.append(at)
            self._values.append(value)

    def at(self, event: int) -> T:
        """Return the value after an event."""
        return self._values[bisect_right(self._at, event) - 1]

    def changes(self) -> Iterator[tuple[int, T, T]]:
        """Yield each change: its event, the value before, the value after."""
        yield from zip(self._at[1:], self._values, self._values[1:], strict=False)

    def latest_first(self, begin: int, end: int) -> Iterator[tuple[int, T]]:
        """Yield each value of the time between two events, with the first of its events in it."""
        for at, value in zip(reversed(self._at), reversed(self._values), strict=True):
            if at < end:
                yield max(at, begin), value
            if at <= begin:
                return


@dataclass(slots=True, eq=False)
class Call:
    """A command of a worker, from the event that issued it to the one that returned its result.

    Attributes:
        detail: of a ResolveShipment: why it is needed, as the model has it.
        result: None without one: the worker died, or the journal was unavailable.
        taken: its place in the model is found.
    """

    command: Any
    attempt: int
    issued: int
    detail: str = ""
    returned: int = NEVER
    result: Any = None
    taken: bool = False

    @property
    def name(self) -> str:
        return type(self.command).__name__

    @property
    def is_certain(self) -> bool:
        return self.result is not None and not isinstance(self.result, InDoubt | Unsupported)

    def observed(self) -> tuple[str, str]:
        """Return the command as the model shows it."""
        detail = self.command.transition.after.value if isinstance(self.command, commands.Update) else self.detail
        return self.name, detail


@dataclass(slots=True, eq=False)
class Worker:
    """A worker's part in an order."""

    entry: Entry
    has_card: bool
    began: int
    ended: int = NEVER
    calls: list[Call] = field(default_factory=list)

    @property
    def owner(self) -> str:
        return self.entry.owner

    def issue(self, at: int, command: Any) -> None:
        if isinstance(command, _NOT_MODELLED):
            return
        outcomes = [call.result for call in self.calls if call.is_certain]
        detail = ""
        if isinstance(command, commands.ResolveShipment):
            detail = "refused" if outcomes and isinstance(outcomes[-1], Refused) else "displaced"
        self.calls.append(Call(command, self._attempt(), at, detail))

    def end_call(self, at: int, result: Any) -> None:
        if self.calls and self.calls[-1].returned == NEVER:
            self.calls[-1].returned, self.calls[-1].result = at, result

    def after(self, call: Call) -> Call | None:
        """Return the command that followed a call; None if it is unknown, because the worker died before."""
        following = self.calls[self.calls.index(call) + 1 :]
        return following[0] if following else None

    def _attempt(self) -> int:
        if not self.calls:
            return self.entry.attempt
        last = self.calls[-1]
        begins_next = isinstance(last.command, commands.Update) and last.command.transition.after is State.CHARGING
        return last.attempt + begins_next


class Tables:
    """Reads rows of the databases.

    Args:
        numbers: of requests, by e-mail address, HMAC of the card, and street.
        columns: of the tables, by name.
    """

    def __init__(self, numbers: Mapping[Any, int], columns: Mapping[str, tuple[str, ...]]) -> None:
        self._numbers = numbers
        self._columns = columns

    def order(self, values: Values | None) -> Row | None:
        if values is None:
            return None
        row = self._by_name("orders", values)
        state = State.SHIPPED if row["state"] == "DONE" else State(row["state"])
        refusal = orjson.loads(row["refusal"] or "{}")
        pending = refusal.get("refused_as", State.ABANDONED.value) if state is State.CHARGING else ""
        price = (row["currency_code"], row["total_units"], row["total_nanos"])
        return Row(state, row["attempt"], row["owner"], Content(self._numbers[row["email"]], price), pending)

    def charge(self, values: Values | None) -> PeerEntry:
        row = self._by_name("charges", values or ())
        if row.get("card_hmac") is None:
            return PeerEntry(row.get("state", "NONE"))
        price = (row["currency_code"], row["units"], row["nanos"])
        return PeerEntry(row["state"], Content(self._numbers[row["card_hmac"]], price))

    def shipment(self, values: Values | None) -> PeerEntry:
        row = self._by_name("shipments", values or ())
        if row.get("parcel") is None:
            return PeerEntry(row.get("state", "NONE"))
        street = orjson.loads(row["parcel"])["address"]["street_address"]
        return PeerEntry(row["state"], Content(self._numbers[street], ()))

    def _by_name(self, table: str, values: Values) -> dict[str, Any]:
        return dict(zip(self._columns[table], values, strict=True)) if values else {}


class OrderHistory:
    """What a run did with one order.

    Attributes:
        losses: the events at which the journal lost changes of the order, each with the event of the last change left.
    """

    def __init__(self, order_id: str, events: Iterable[Event], tables: Tables) -> None:
        self.order_id = order_id
        self.row: Versions[Row | None] = Versions(None)
        self.charges: dict[str, Versions[PeerEntry]] = defaultdict(lambda: Versions(NO_ENTRY))
        self.shipments: dict[str, Versions[PeerEntry]] = defaultdict(lambda: Versions(NO_ENTRY))
        self.workers: dict[int, Worker] = {}
        self.losses: list[tuple[int, int]] = []
        self._tables = tables
        self._commits: list[tuple[int, Row | None]] = [(-1, None)]
        for at, event in enumerate(events):
            self._add(at, event)

    def entries_of(self, call: Call) -> Versions[PeerEntry]:
        """Return the entries that the key of a call had at its peer."""
        if isinstance(call.command, _SHIPPING_COMMANDS):
            return self.shipments[ship_key(self.order_id, call.attempt)]
        return self.charges[charge_key(self.order_id, call.attempt)]

    def _add(self, at: int, event: Event) -> None:
        match event:
            case Committed(changes):
                self._commit(at, changes)
            case Lost(remaining):
                self._lose(at, remaining)
            case Began(worker, entry, has_card) if entry.order_id == self.order_id:
                self.workers[worker] = Worker(entry, has_card, at)
            case Issued(worker, command) if worker in self.workers:
                self.workers[worker].issue(at, command)
            case Returned(worker, result) if worker in self.workers:
                self.workers[worker].end_call(at, result)
            case Ended(worker) if worker in self.workers:
                self.workers[worker].ended = at

    def _commit(self, at: int, changes: Iterable[Change]) -> None:
        for change in changes:
            table, (key, *_) = change.row
            if not key.startswith(self.order_id):
                continue
            if table == "charges":
                self.charges[key].add(at, self._tables.charge(change.after))
            elif table == "shipments":
                self.shipments[key].add(at, self._tables.shipment(change.after))
            elif table == "orders":
                self.row.add(at, self._tables.order(change.after))
        if all(change.row.table not in {"charges", "shipments"} for change in changes):
            self._commits.append((at, self.row.at(at)))

    def _lose(self, at: int, remaining: int) -> None:
        del self._commits[remaining + 1 :]
        row = self._commits[-1][1]
        if row != self.row.at(at):
            (since,) = [each for each, _ in self._commits if self.row.at(each) == row][:1] or [-1]
            self.losses.append((at, since))
        self.row.add(at, row)
