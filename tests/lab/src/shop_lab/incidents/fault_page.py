"""*Faults* in the control room: the catalogue, with what each fault does, where to look, and how it was proven."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from shop_cli.control_room.room import ControlRoom
from shop_lab.incidents import injector
from shop_lab.incidents.catalogue import Fault, find, load_all
from shop_lab.incidents.local import Local
from shop_lab.incidents.state import Record


@dataclass
class FaultPage:
    """The page of a shop whose data is in a folder. It starts and stops faults that need no cluster.

    `started`: the faults that this page has started, by the tokens of their records.
    """

    room: ControlRoom
    folder: Path
    started: dict[str, Fault] = field(default_factory=dict)
    page: str = "/faults"
    template: str = field(default=Path(__file__).with_suffix(".html").read_text(encoding="utf-8"), repr=False)

    @property
    def catalogue(self) -> list[Fault]:
        """All faults, those that can be started here first."""
        return sorted(load_all().values(), key=lambda fault: not (fault.local and fault.injections))

    @property
    def injected(self) -> list[Record]:
        return [record for record in Local(self.folder).records() if record.seconds_left]

    async def act(self, form: Mapping[str, str]) -> None:
        """Start a fault, or stop what has a token. Raise FaultNotFound, CannotAct or CannotRestore."""
        target = Local(self.folder)
        if "start" in form:
            fault = find(form["start"])
            record = await asyncio.to_thread(injector.start, fault, target, fault.seconds)
            injector.leave(record, target)
            self.started[record.token] = fault
        else:
            await asyncio.to_thread(injector.restore, target, tokens=[form.get("stop", "")])
