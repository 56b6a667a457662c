"""What laboratories on this machine and on clusters have in common."""

from dataclasses import dataclass

from chassis.errors import FailedPrecondition
from chassis.tls.certificates import Certificates


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
