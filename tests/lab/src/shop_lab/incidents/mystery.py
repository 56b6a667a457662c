"""*Mystery* in the control room: one fault at random, an answer, and what it was."""

import asyncio
import secrets
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from chassis.errors import FailedPrecondition, InvalidArgument
from shop_cli.control_room.room import ControlRoom
from shop_lab.incidents import catalogue, injector
from shop_lab.incidents.catalogue import Fault
from shop_lab.incidents.local import Local
from shop_lab.incidents.state import Record
from shop_lab.incidents.targets import CannotRestore

_CUSTOMERS = 2.0
"""Sessions a second, if nobody visits the shop: without calls nothing fails."""
_SECONDS = 900
"""Of every fault: `shop faults list` shows when it ends, which must not tell them apart."""


class OutOfTurn(FailedPrecondition):
    """A mystery is started, answered and revealed in this order; the page was older than the mystery."""


@dataclass
class Mystery:
    """The section of a shop whose data is in a folder.

    Attributes:
        hidden: whether a fault was started that the page may not name.
        answers: each with the seconds since the start.
    """

    room: ControlRoom
    folder: Path
    fault: Fault | None = None
    hidden: bool = False
    page: str = "/"
    answers: list[tuple[float, str]] = field(default_factory=list)
    template: str = field(default=Path(__file__).with_suffix(".html").read_text(encoding="utf-8"), repr=False)
    _record: Record = field(default_factory=Record)
    _began: float = 0.0

    def __post_init__(self) -> None:
        with suppress(CannotRestore):  # a record of an earlier version
            injector.restore(Local(self.folder), everything=True)  # what a shop that was killed left behind

    @property
    def is_over(self) -> bool:
        injected = {record.token for record in Local(self.folder).records() if record.seconds_left}
        return self._record.token not in injected

    @property
    def suspects(self) -> Sequence[str]:
        return [process.name for process in self.room.processes]

    async def act(self, form: Mapping[str, str]) -> None:
        match form.get("step"):
            case "start" if not self.hidden:
                await self._start()
            case "answer" if self.hidden:
                self._answer(form.get("answer", "").strip())
            case "reveal" if self.hidden:
                await asyncio.to_thread(injector.restore, Local(self.folder), tokens=[self._record.token])
                self.hidden = False
            case _:
                raise OutOfTurn("start a mystery before you answer, and reveal it before the next one")

    async def _start(self) -> None:
        """Start a fault, and customers if there are none."""
        chosen = secrets.choice([fault for fault in suitable() if fault != self.fault])
        if not self.room.customers.rate:
            await self.room.customers.set_rate(_CUSTOMERS)
        self._record = await asyncio.to_thread(injector.start, chosen, Local(self.folder), _SECONDS)
        injector.leave(self._record, Local(self.folder))
        self.fault, self.hidden, self.answers, self._began = chosen, True, [], time.monotonic()

    def _answer(self, service: str) -> None:
        if service not in self.suspects:
            raise InvalidArgument.field("answer", f"must be one of {', '.join(self.suspects)}")
        self.answers.append((time.monotonic() - self._began, service))


def suitable() -> list[Fault]:
    """Return the faults that act at once in every local laboratory."""
    return [
        fault
        for fault in catalogue.load_all().values()
        if fault.kind == "fault"
        and fault.local
        and {injection.mechanism for injection in fault.injections} == {"failpoint"}
    ]
