"""What is wrong with invalid input, by field, in texts that never contain a value."""

import unicodedata
from collections.abc import Iterable

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from chassis.errors import FieldViolation
from employee_api.fields import BROKEN_RULE

_MAX_VIOLATIONS = 20
_MAX_NAME_LENGTH = 64
_UNKNOWN = "is unknown"
# Their placeholders are limits and choices of the model, not the client's values.
_RULES = {
    BROKEN_RULE: "{rule}",
    "missing": "is required",
    "extra_forbidden": _UNKNOWN,
    "string_type": "must be text",
    "string_too_short": "is too short: at least {min_length} characters",
    "string_too_long": "is too long: at most {max_length} characters",
    "string_pattern_mismatch": "has a character that is not allowed",
    "too_short": "has too few items: at least {min_length}",
    "too_long": "has too many items: at most {max_length}",
    "greater_than_equal": "must be at least {ge}",
    "greater_than": "must be more than {gt}",
    "less_than_equal": "must be at most {le}",
    "less_than": "must be less than {lt}",
    "int_type": "must be a whole number",
    "int_parsing": "must be a whole number",
    "int_parsing_size": "must be a smaller number",
    "int_from_float": "must be a whole number",
    "bool_type": "must be true or false",
    "bool_parsing": "must be true or false",
    "list_type": "must be a list",
    "uuid_type": "must be a UUID",
    "uuid_parsing": "must be a UUID",
    "enum": "must be {expected}",
    "literal_error": "must be {expected}",
    "date_type": "must be YYYY-MM-DD",
    "model_type": "must be an object",
    "model_attributes_type": "must be an object",
}


def violations_of(error: ValidationError) -> list[FieldViolation]:
    """Return what is wrong with each field, at most twenty of them."""
    details = error.errors(include_url=False, include_input=False)
    return [FieldViolation(_path(detail["loc"]), _rule(detail)) for detail in details[:_MAX_VIOLATIONS]]


def unknown_names(names: Iterable[str]) -> list[FieldViolation]:
    """Return the violations for names that are not known."""
    return [FieldViolation(clean_name(name), _UNKNOWN) for name in list(names)[:_MAX_VIOLATIONS]]


def clean_name(name: str) -> str:
    """Return a client's name of a field as an error may show it: short, and without control characters."""
    printable = "".join("?" if unicodedata.category(character)[0] in "CZ" else character for character in name)
    return printable if len(printable) <= _MAX_NAME_LENGTH else f"{printable[:_MAX_NAME_LENGTH]}…"


def describe(violations: Iterable[FieldViolation]) -> str:
    """Return one text for all of them."""
    return "; ".join(f"{violation.field or 'Request body'} {violation.rule}" for violation in violations)


def _path(location: tuple[int | str, ...]) -> str:
    return ".".join(clean_name(str(part)) for part in location)


def _rule(detail: ErrorDetails) -> str:
    limits = detail.get("ctx", {})
    if detail["type"] == "string_too_short" and limits["min_length"] == 1:
        return "must not be empty"
    return _RULES.get(detail["type"], "is invalid").format_map(limits)
