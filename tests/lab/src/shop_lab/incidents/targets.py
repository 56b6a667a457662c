"""What faults are injected into: a laboratory on this machine, or one on a cluster."""

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol

from chassis.errors import FailedPrecondition
from chassis.tls.certificates import Certificates
from shop_lab.incidents.catalogue import Fault, Where
from shop_lab.incidents.state import Inverse, Record

END_SESSIONS = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = '{}'"
"""Of PostgreSQL, with the token that is their application's name."""


class NoLaboratory(FailedPrecondition):
    """The shop is no laboratory, so nothing in it may be broken on purpose."""


class CannotAct(FailedPrecondition):
    """A fault cannot act on this shop; nothing was injected."""


class CannotRestore(FailedPrecondition):
    """Something injected could not be undone yet; the next command tries again."""


@dataclass(frozen=True)
class Endpoint:
    """Where one process serves its internal services."""

    process: str
    address: str
    certificates: Certificates | None = None
    server_name: str = ""


class Target(Protocol):
    """A laboratory. Its methods raise CannotAct if the shop has not got what they need."""

    @property
    def kinds(self) -> frozenset[Where]:
        """Which faults can live in it."""

    def save(self, record: Record) -> None:
        """Save a record so that it survives this process."""

    def records(self) -> list[Record]: ...

    def forget(self, record: Record) -> None: ...

    def locked(self) -> AbstractContextManager[None]:
        """Hold the lock of those that restore."""

    def guard(self, record: Record) -> None:
        """Start what undoes a saved record when it expires, even if this process is gone."""

    def endpoints(self, service: str) -> AbstractContextManager[Sequence[Endpoint]]:
        """Reach the internal services of each process of a gRPC service."""

    def modules(self, service: str) -> Mapping[str, str]:
        """Return the modules that replace those of a service, by file name."""

    def replace_modules(self, service: str, changes: Mapping[str, str | None]) -> None:
        """Write modules of a service, remove those that are None, and restart it."""

    def restoring_modules(self, service: str, file: str) -> Inverse:
        """Return what `guard` needs to remove a module of a service."""

    def query(self, store: str, database: str, statement: str) -> str:
        """Run a statement or command in a store, and return its first result. Raise CannotAct if it is refused."""

    def background(self, store: str, database: str, statements: Sequence[str], token: str) -> None:
        """Run statements in one session, or commands one after the other, without waiting. A number is a pause."""

    def end_background(self, store: str, token: str) -> None:
        """End what `background` has started, so that its open transactions are rolled back."""

    def send_customers(self, settings: Mapping[str, str], program: str = "") -> None:
        """Send customers, who end by themselves after DURATION_SECONDS. The settings are the load generator's.

        A program in Python runs in place of the load generator's own.
        """

    def end_customers(self, seed: str) -> None: ...


def require(fault: Fault, target: Target) -> None:
    """Raise CannotAct if a fault cannot live in a target."""
    if not target.kinds & set(fault.where):
        places = ", ".join(fault.where)
        raise CannotAct(f"{fault.id} can run in: {places}; this shop is: {', '.join(sorted(target.kinds))}")
