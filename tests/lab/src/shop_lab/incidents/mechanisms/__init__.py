"""How faults act: each mechanism returns its inverse, which is saved, before it acts."""

from typing import Any, Protocol

from shop_lab.incidents.mechanisms.failpoint import FailpointMechanism
from shop_lab.incidents.mechanisms.load import LoadMechanism
from shop_lab.incidents.mechanisms.objects import ObjectMechanism
from shop_lab.incidents.mechanisms.patch import PatchMechanism
from shop_lab.incidents.mechanisms.store import StoreMechanism
from shop_lab.incidents.state import Inverse
from shop_lab.incidents.targets import Target


class Mechanism(Protocol):
    """A way to break a shop."""

    def prepare(self, injection: Any, target: Target, token: str, seconds: float) -> Inverse:
        """Check that the injection can act, change nothing, and return how to undo it. Raise CannotAct."""

    def act(self, injection: Any, target: Target, inverse: Inverse) -> None:
        """Inject. Raise CannotAct."""

    def undo(self, target: Target, inverse: Inverse) -> None:
        """Undo an injection, even if it was undone before, has ended, or never acted."""


MECHANISMS: dict[str, Mechanism] = {
    "failpoint": FailpointMechanism(),
    "patch": PatchMechanism(),
    "object": ObjectMechanism(),
    "store": StoreMechanism(),
    "load": LoadMechanism(),
}
