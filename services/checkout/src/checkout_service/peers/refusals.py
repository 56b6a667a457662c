"""Converts a peer's refusal for storage, without any number that its text may quote."""

import re

from chassis.errors import REFUSALS, DomainError, FieldViolation, InvalidArgument
from checkout_service.domain import Refusal

_REASON = re.compile(r"[A-Z][A-Z_]{0,62}")
_NUMBER = re.compile(r"[0-9](?:[ -]?[0-9]){2,}")


def refusal_from_error(error: DomainError) -> Refusal:
    """Return the refusal in an error of one of the REFUSALS, with the peer's own code and reason."""
    kind = next(kind.__name__ for kind in type(error).__mro__ if kind in REFUSALS)
    violations = error.violations if isinstance(error, InvalidArgument) else ()
    masked = tuple(FieldViolation(_mask_numbers(each.field), _mask_numbers(each.rule)) for each in violations)
    return Refusal(kind, valid_reason(error.reason), _mask_numbers(error.message), masked)


def valid_reason(reason: str) -> str:
    """Return a well-formed reason as it is, any other text as REFUSED."""
    return reason if _REASON.fullmatch(reason) else "REFUSED"


def _mask_numbers(text: str) -> str:
    return _NUMBER.sub("[number]", text)
