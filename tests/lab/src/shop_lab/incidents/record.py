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

from pydantic import ConfigDict, Field, ValidationError

from chassis.errors import FailedPrecondition
from shop_lab.incidents.catalogue import Fault, Strict
from shop_lab.incidents.state import write_durably

WINDOW, TRUTH = "window.json", "truth.json"

Phase = Literal["before", "during", "after"]
Verdict = Literal["holds", "violated", "unknown"]
Nanos = int
"""Unix time in nanoseconds, UTC."""


class RecordMalformed(FailedPrecondition):
    """A folder is no record, or not the one whose hash was published."""


class Plan(Strict):
    """What is decided before the start. The nonce keeps its hash from being guessed."""

    faults: tuple[str, ...]
    seconds: tuple[float, ...]
    seed: int = 0
    nonce: str = Field(default_factory=lambda: secrets.token_hex(16))

    def digest(self) -> str:
        return hashlib.sha256(json.dumps(self.model_dump(), sort_keys=True).encode()).hexdigest()


class Window(Strict):
    """What investigators know: when to look, and at which shop. `ended` and the truth's hash follow at the end."""

    schema_version: Literal[1] = 1
    id: str
    namespace: str
    began: Nanos
    ended: Nanos | None = None
    plan_sha256: str
    truth_sha256: str = ""


class Evidence(Strict):
    """A part of the truth, which grows while an incident runs."""

    model_config = ConfigDict(frozen=False)


class Times(Evidence):
    """When a fault was requested, applied, seen to act, removed, and no longer seen; None for what has not happened."""

    requested: Nanos = 0
    applied: Nanos | None = None
    effective: Nanos | None = None
    removed: Nanos | None = None
    recovered: Nanos | None = None


class Proof(Evidence):
    """The values of the effect's query before, during and after the fault, and the bounds that only a fault meets."""

    query: str
    above: float | None = None
    below: float | None = None
    baseline: list[float | None] = Field(default_factory=list)
    value: float | None = None
    healed: float | None = None


class InjectedFault(Evidence):
    """A fault, as the catalogue had it then, and what it did."""

    fault: Fault
    seconds: float
    times: Times
    proof: Proof | None = None


class Firing(Evidence):
    """One alert from the moment it fired until it resolved. Times are Unix seconds, None for what has not happened."""

    labels: Mapping[str, str]
    began: float
    ended: float | None = None
    uninhibited_since: float | None = None
    paged_at: float | None = None

    @property
    def name(self) -> str:
        """The alert with what it is about: `Name(slo or service)`."""
        subject = self.labels.get("slo") or self.labels.get("service_name") or ""
        return f"{self.labels['alertname']}({subject})" if subject else self.labels["alertname"]


class Truth(Evidence):
    """Everything about an incident.

    Attributes:
        versions: of the shop and of what runs it, by name.
        invariants: by phase and name.
        problems: what was not as the catalogue has it, one line each.
    """

    schema_version: Literal[1] = 1
    id: str
    plan: Plan
    versions: Mapping[str, str]
    faults: list[InjectedFault] = Field(default_factory=list)
    alerts: list[Firing] = Field(default_factory=list)
    invariants: dict[Phase, Mapping[str, Verdict]] = Field(default_factory=dict)
    problems: list[str] = Field(default_factory=list)


class Record:
    """The folder of a run that has begun, and its truth. Files are replaced as a whole, so that a crash leaves one."""

    def __init__(self, folder: Path, plan: Plan, namespace: str, versions: Mapping[str, str]) -> None:
        self.truth = Truth(id=secrets.token_hex(6), plan=plan, versions=versions)
        self.folder = folder / self.truth.id
        self.folder.mkdir(parents=True)
        self._window = Window(id=self.truth.id, namespace=namespace, began=time.time_ns(), plan_sha256=plan.digest())
        write_durably(self.folder / WINDOW, self._window.model_dump_json(indent=2))

    @contextmanager
    def begun(self) -> Iterator["Record"]:
        """Remove the folder after the context unless a fault was started in it."""
        try:
            yield self
        finally:
            if not (self.folder / TRUTH).exists():
                shutil.rmtree(self.folder)

    def save(self) -> None:
        """Write what is known so far."""
        write_durably(self.folder / TRUTH, self.truth.model_dump_json(indent=2), 0o600)

    def close(self) -> None:
        """Write the truth and publish its hash."""
        self.save()
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
        slip = error.errors()[0]
        raise RecordMalformed(f"{folder}: {'.'.join(map(str, slip['loc']))}: {slip['msg']}") from None
    if not window.truth_sha256:
        raise RecordMalformed(f"{folder}: the incident has not ended")
    if (window.plan_sha256, window.truth_sha256) != (truth.plan.digest(), _digest(folder / TRUTH)):
        raise RecordMalformed(f"{folder}: truth.json is not the one whose hash window.json has")
    return window, truth


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
