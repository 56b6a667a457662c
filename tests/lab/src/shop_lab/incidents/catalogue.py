"""The catalogue: each fault is a file `faults/<id>.yaml`, with the injections, the proof and the labels that it has."""

from collections.abc import Mapping
from functools import cache, cached_property
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import yaml
from pydantic import BaseModel, ConfigDict, Field, model_validator

from chassis.errors import NotFound

FOLDER = Path(__file__).with_name("faults")

Kind = Literal["fault", "control", "cascade"]
RcaEval = Literal["cpu", "mem", "disk", "socket", "delay", "loss", "f1", "f2", "f3", "f4", "f5"]
"""Tokens of RCAEval's folders: resources, network, and the classes of faults in code."""

Text = Annotated[str, Field(min_length=1)]
Seconds = Annotated[float, Field(gt=0, le=3600)]


class FaultNotFound(NotFound):
    """The catalogue has no fault of this id."""


class Strict(BaseModel):
    """A part of a fault: no other fields, no other types."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Injection(Strict):
    """What all injections have. `after` delays it, in seconds from the start of the fault."""

    after: Annotated[float, Field(ge=0, le=3600)] = 0


class FailpointInjection(Injection):
    """A failpoint of a running service.

    Attributes:
        specification: an entry of FAILPOINTS, as `shop.internal.Failpoints` describes them.
        pods: how many pods of the service have it; all unless stated.
    """

    mechanism: Literal["failpoint"]
    service: Text
    specification: Text
    pods: Annotated[int, Field(ge=1)] | None = None


class PatchInjection(Injection):
    """A unified diff against one module of a service. Its header has the module's path below `src/`."""

    mechanism: Literal["patch"]
    service: Text
    diff: Text


class ObjectInjection(Injection):
    """A change to a Kubernetes object.

    Attributes:
        target: `kind/component`, such as `deployment/checkout`; the release's name is put before the component's.
        patch: of its `spec`, as `kubectl patch` merges it: elements of lists by their names; null removes a field.
    """

    mechanism: Literal["object"]
    target: str = Field(pattern=r"^[a-z]+/[a-z0-9-]+$")
    patch: Mapping[Literal["spec"], Any]


class StoreInjection(Injection):
    """Statements to a store.

    Attributes:
        database: of PostgreSQL, named after its service.
        save: a query or command with one result, which `{saved}` stands for in `restore`.
        apply, restore: the statements of the fault and their inverse.
        hold: statements of a transaction that stays open for the duration of the fault, instead of the above.
    """

    mechanism: Literal["store"]
    store: Literal["postgresql", "valkey"]
    database: str = "postgres"
    save: str = ""
    apply: tuple[Text, ...] = ()
    restore: tuple[Text, ...] = ()
    hold: tuple[Text, ...] = ()

    @model_validator(mode="after")
    def _inverse(self) -> Self:
        if bool(self.hold) == bool(self.apply) or bool(self.apply) != bool(self.restore):
            raise ValueError("a store needs either hold, or both apply and restore")
        return self


class LoadInjection(Injection):
    """Further customers: those of the load generator, or only some who try cards that are not accepted."""

    mechanism: Literal["load"]
    rate: Annotated[float, Field(gt=0, le=1000)]
    shape: Literal["steady", "spike"] = "steady"
    persona: Literal["", "card_tester"] = ""


AnyInjection = Annotated[
    FailpointInjection | PatchInjection | ObjectInjection | StoreInjection | LoadInjection,
    Field(discriminator="mechanism"),
]


class Bounds(Strict):
    """Values that only a shop with the fault has. A query without a result is not within them."""

    above: float | None = None
    below: float | None = None

    @model_validator(mode="after")
    def _one_bound(self) -> Self:
        if (self.above is None) == (self.below is None):
            raise ValueError("either above or below is required")
        return self

    def contain(self, value: float | None) -> bool:
        """Return whether a value shows the fault."""
        if value is None:
            return False
        return value > self.above if self.above is not None else value < (self.below or 0.0)


class Query(Strict):
    """A query in PromQL, in which `$in` stands for the matcher of the release's namespace."""

    query: Text

    @property
    def promql(self) -> str:
        """The query of one release's Prometheus, in one line."""
        return " ".join(self.query.replace("$in,", "").replace("{$in}", "").split())


class Effect(Bounds, Query):
    """The proof that the fault bites: the query has one value.

    `within`: seconds from the start of the fault's last injection until the value is within its bounds.
    """

    within: Annotated[float, Field(gt=0, le=120)] = 120


class Expected(Strict):
    """The alerts of the fault, each as `Name(slo or service)`.

    Attributes:
        first: the alert that must fire first; empty if none may.
        within: seconds from the start of the fault until it fires.
        page: the alert that must page first; empty if nobody may be woken.
        may_fire: further alerts that the fault explains.
        must_not_fire: alerts that would blame something else.
    """

    first: str = ""
    within: Seconds = 300
    page: str = ""
    may_fire: tuple[Text, ...] = ()
    must_not_fire: tuple[Text, ...] = ()


class Labels(Strict):
    """The fault in the vocabularies of others; what none of them has a word for stays empty."""

    rcaeval: RcaEval | None = None
    itbench: Mapping[Literal["category", "mechanism"], str] = {}
    openrca: str = ""


class Step(Query):
    """A step of the walk from the symptom to the cause: a question, the query that answers it, what it shows.

    `here`: what shows it on a machine without Prometheus.
    """

    question: Text
    answer: Text
    here: str = ""


class Fault(Strict):
    """A fault of the catalogue.

    Attributes:
        id: the name of its file.
        service: the entity at fault, a name of the shop's chart; empty for a control.
        path: the services that the symptom passes, from the fault to the customer.
        local: whether `shop up --lab` can have it too, not only a release with `lab.enabled`.
        seconds: how long it lasts unless the command says otherwise.
    """

    id: str
    title: Text
    kind: Kind = "fault"
    service: str = ""
    path: tuple[Text, ...] = ()
    local: bool = False
    seconds: Seconds = 300
    injections: tuple[AnyInjection, ...] = ()
    effect: Effect | None = None
    expected: Expected = Expected()
    labels: Labels = Labels()
    walk: tuple[Step, ...] = ()
    mitigation: str = ""

    @model_validator(mode="after")
    def _proven(self) -> Self:
        if self.kind != "control":
            missing = [
                name for name in ("service", "injections", "effect", "walk", "mitigation") if not getattr(self, name)
            ]
            if missing:
                raise ValueError(f"a {self.kind} without {missing[0]} is not proven")
        elif self.effect or self.expected.first or self.service:
            raise ValueError("a control has no effect, no alert and no service")
        mechanisms = {injection.mechanism for injection in self.injections}
        if self.local and not mechanisms <= {"failpoint", "load"}:
            raise ValueError("a local shop has failpoints and customers alone")
        if self.local and not all(step.here for step in self.walk):
            raise ValueError("a local shop has no Prometheus: its steps say what shows the answer `here`")
        return self

    def shows(self, value: float | None) -> bool:
        """Return whether a value of its effect is one of a shop with the fault."""
        return self.effect is not None and self.effect.contain(value)

    @cached_property
    def words(self) -> frozenset[str]:
        """What nothing that an investigator reads may contain: id, title, and what labels call it."""
        mechanism = self.labels.itbench.get("mechanism", "")
        return frozenset(filter(None, (self.id, self.title, mechanism, self.labels.openrca)))


@cache
def load_all() -> Mapping[str, Fault]:
    """Read the catalogue: all faults by their ids, in order."""
    return {
        path.stem: Fault(**{**yaml.safe_load(path.read_text(encoding="utf-8")), "id": path.stem})
        for path in sorted(FOLDER.glob("*.yaml"))
    }


def find(identifier: str) -> Fault:
    """Return one fault. Raise FaultNotFound."""
    if identifier not in load_all():
        raise FaultNotFound(f"no fault {identifier!r} in the catalogue: `shop faults` lists them")
    return load_all()[identifier]
