"""The record of an incident: what investigators get, and the truth that only the instructor reads.

A run is a folder `<opaque id>/` with `window.json` and `telemetry/` for investigators, and `truth.json`. Before the
first fault starts, `window.json` has a hash of the plan; at the end it has one of `truth.json` as well.
"""

import hashlib
import json
import secrets
import shutil
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

from pydantic import Field, ValidationError

from chassis.errors import FailedPrecondition
from shop_lab.incidents.catalogue import Fault, Strict, first_slip
from shop_lab.incidents.state import write_durably

WINDOW, TRUTH = "window.json", "truth.json"

Phase = Literal["before", "during", "after"]
Verdict = Literal["holds", "violated", "unknown"]
Where = Literal["local", "cluster"]
Nanos = int
"""Unix time in nanoseconds, UTC."""


class RecordMalformed(FailedPrecondition):
    """A folder is no record, or not the one whose hash was published."""


class Plan(Strict):
    """What is decided before the start. The nonce keeps its hash from being guessed."""

    faults: tuple[str, ...]
    seconds: tuple[float, ...]
    seed: int
    nonce: str = Field(default_factory=lambda: secrets.token_hex(16))

    def digest(self) -> str:
        return hashlib.sha256(json.dumps(self.model_dump(), sort_keys=True).encode()).hexdigest()


class Window(Strict):
    """What investigators know: when to look, and at which shop. `ended` and the truth's hash follow at the end."""

    schema_version: Literal[1] = 1
    id: str
    where: Where
    namespace: str = ""
    began: Nanos
    ended: Nanos | None = None
    plan_sha256: str
    truth_sha256: str = ""


class Times(Strict):
    """When a fault was requested, applied, seen to act, removed, and no longer seen; None for what has not happened."""

    requested: Nanos
    applied: Nanos | None = None
    effective: Nanos | None = None
    removed: Nanos | None = None
    recovered: Nanos | None = None


class Proof(Strict):
    """The values of the effect's query before, during and after the fault, and the bounds that only a fault meets."""

    query: str
    above: float | None = None
    below: float | None = None
    baseline: tuple[float | None, ...] = ()
    value: float | None = None
    healed: float | None = None


class InjectedFault(Strict):
    """A fault, as the catalogue had it then, and what it did."""

    fault: Fault
    seconds: float
    times: Times
    proof: Proof | None = None


class ObservedAlert(Strict):
    """An alert that fired: whether it paged, and when it fired and resolved."""

    name: str
    severity: str
    paged: bool
    fired: Nanos
    resolved: Nanos | None = None


class Load(Strict):
    """The customers: sessions a second, and the seed of their choices. `chart` are those of the release."""

    source: Literal["command", "chart"]
    rate: float | None = None
    seed: int | None = None


class Truth(Strict):
    """Everything about an incident.

    Attributes:
        versions: of the shop and of what runs it, by name.
        invariants: by phase and name.
        problems: what was not as the catalogue has it, one line each.
    """

    schema_version: Literal[1] = 1
    id: str
    plan: Plan
    where: Where
    versions: Mapping[str, str]
    load: Load
    faults: tuple[InjectedFault, ...] = ()
    alerts: tuple[ObservedAlert, ...] = ()
    invariants: Mapping[Phase, Mapping[str, Verdict]] = {}
    problems: tuple[str, ...] = ()


class Record:
    """The folder of a run that has begun. Files are replaced as a whole, so that a crash leaves what was known."""

    def __init__(self, folder: Path, plan: Plan, where: Where, namespace: str = "") -> None:
        self.id = secrets.token_hex(6)
        self.folder = folder / self.id
        self.where = where
        (self.folder / "telemetry").mkdir(parents=True)
        self._window = Window(
            id=self.id, where=where, namespace=namespace, began=time.time_ns(), plan_sha256=plan.digest()
        )
        write_durably(self.folder / WINDOW, self._window.model_dump_json(indent=2))

    @contextmanager
    def begun(self) -> Iterator["Record"]:
        """Remove the folder after the context unless a fault was started in it."""
        try:
            yield self
        finally:
            if not (self.folder / TRUTH).exists():
                shutil.rmtree(self.folder)

    def save(self, truth: Truth) -> None:
        """Write what is known so far."""
        write_durably(self.folder / TRUTH, truth.model_dump_json(indent=2), 0o600)

    def close(self, truth: Truth) -> None:
        """Write the truth and publish its hash."""
        self.save(truth)
        digest = _digest(self.folder / TRUTH)
        window = self._window.model_copy(update={"ended": time.time_ns(), "truth_sha256": digest})
        write_durably(self.folder / WINDOW, window.model_dump_json(indent=2))


def read(folder: Path) -> tuple[Window, Truth]:
    """Read a run that has ended. Raise RecordMalformed, also if the hashes are not those of the truth."""
    try:
        window = Window.model_validate_json((folder / WINDOW).read_bytes())
        truth = Truth.model_validate_json((folder / TRUTH).read_bytes())
    except OSError as error:
        raise RecordMalformed(f"{error.filename}: {error.strerror}") from None
    except ValidationError as error:
        raise RecordMalformed(f"{folder}: {first_slip(error)}") from None
    if not window.truth_sha256:
        raise RecordMalformed(f"{folder}: the incident has not ended")
    if (window.plan_sha256, window.truth_sha256) != (truth.plan.digest(), _digest(folder / TRUTH)):
        raise RecordMalformed(f"{folder}: truth.json is not the one whose hash window.json has")
    return window, truth


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
