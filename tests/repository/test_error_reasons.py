"""The enum of error reasons lists exactly the reasons that services raise: they are part of the contract."""

import importlib
import pkgutil
import re
from collections.abc import Iterator
from pathlib import Path

from chassis import errors
from chassis.rpc.status import code_of
from payment_service.cards import Decline
from payment_service.domain import CardDeclined
from shop_internal.error_reasons_pb2 import ErrorReason

ROOT = Path(__file__).parents[2]
PROTO = (ROOT / "protos/shop_internal/error_reasons.proto").read_text()
SERVICES = {package.name for package in (ROOT / "services").glob("*/src/*_service")}
# The storefront raises errors of its own only to itself: it answers over HTTP.
PACKAGES = ["chassis", *sorted(SERVICES - {"storefront_service"})]

# Kinds that only clients raise, when a peer answers with the status; services raise subclasses of them.
CLIENT_SIDE = {
    errors.Aborted,
    errors.AlreadyExists,
    errors.FailedPrecondition,
    errors.Internal,
    errors.NotFound,
    errors.OutOfRange,
    errors.PermissionDenied,
    errors.ResourceExhausted,
    errors.Unavailable,
    errors.Unimplemented,
}
# Reasons that are not named after a class: declined cards, and refusals that checkout recorded.
VALUES = {
    **dict.fromkeys((decline.value for decline in Decline), "FAILED_PRECONDITION"),
    "ORDER_REFUSED": "FAILED_PRECONDITION",
    "REFUSED": "FAILED_PRECONDITION",
}


def subclasses(kind: type[errors.DomainError]) -> Iterator[type[errors.DomainError]]:
    for subclass in kind.__subclasses__():
        yield subclass
        yield from subclasses(subclass)


def raised() -> dict[str, str]:
    """Return the status code of each reason that a service can raise."""
    for name in PACKAGES:
        for module in pkgutil.walk_packages(importlib.import_module(name).__path__, f"{name}."):
            if ".migrations" not in module.name and not module.name.endswith("__main__"):
                importlib.import_module(module.name)
    kinds = {kind for kind in subclasses(errors.DomainError) if kind.__module__.partition(".")[0] in PACKAGES}
    own = kinds - CLIENT_SIDE - {CardDeclined}
    return {kind.default_reason: code_of(kind.__new__(kind)).name for kind in own} | VALUES


def test_the_enum_documents_exactly_the_reasons_that_services_raise_with_their_status_codes() -> None:
    # The status code is at the start of each value's comment.
    values = re.findall(r"  // ([A-Z_]+): [^\n]+\n(?:  // [^\n]+\n)*  ([A-Z_]+) = [0-9]+;", PROTO)
    documented = {name: code for code, name in values}
    assert documented.keys() == set(ErrorReason.keys()) - {"ERROR_REASON_UNSPECIFIED"}
    assert documented == raised()


def test_reasons_passed_as_strings_are_in_the_enum() -> None:
    texts = {
        text
        for package in PACKAGES
        for source in (ROOT / "services").glob(f"*/src/{package}/**/*.py")
        for line in source.read_text().splitlines()
        if "log." not in line  # which may have other reasons
        for text in re.findall(r'(?:reason=|Refusal\("[A-Za-z]+", )"([A-Z_]+)"', line)
    }
    assert texts <= set(ErrorReason.keys())
