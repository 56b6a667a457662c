"""Validates JSON bodies and query parameters. Errors name the invalid fields, but never contain the client's values."""

import unicodedata
from collections import Counter
from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import orjson
from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails
from starlette.requests import Request
from typing_extensions import override

from chassis.errors import FieldViolation
from chassis.values.cards import mask_cards
from employee_api.errors import ApiError, BadRequest
from employee_api.fields import BROKEN_RULE

MAX_BODY_BYTES = 64 * 1024
_MAX_VIOLATIONS = 20
_MAX_NAME_LENGTH = 64
_UNKNOWN = "is unknown"
NOT_ALLOWED = "has a character that is not allowed"
# The placeholders stand for the model's limits and choices, never for the client's values.
_RULES = {
    BROKEN_RULE: "{rule}",
    "missing": "is required",
    "extra_forbidden": _UNKNOWN,
    "string_type": "must be text",
    "string_too_short": "is too short: at least {min_length} characters",
    "string_too_long": "is too long: at most {max_length} characters",
    "string_pattern_mismatch": NOT_ALLOWED,
    "too_short": "has too few items: at least {min_length}",
    "too_long": "has too many items: at most {max_length}",
    "greater_than_equal": "must be at least {ge}",
    "less_than_equal": "must be at most {le}",
    "int_type": "must be a whole number",
    "int_parsing": "must be a whole number",
    "int_parsing_size": "must be a smaller number",
    "bool_parsing": "must be true or false",
    "list_type": "must be a list",
    "uuid_type": "must be a UUID",
    "enum": "must be {expected}",
    "literal_error": "must be {expected}",
    "model_type": "must be an object",
}


@dataclass(frozen=True)
class RequestInput:
    """An operation's input. This class accepts no input: it rejects query parameters and ignores any body.

    Subclasses read the query or the body.

    Attributes:
        model: the model that validates the input; None if the operation reads no input.
        error_text: the message of every validation error; by default, the message names the invalid fields.
        ignores_query: whether unknown query parameters are ignored, as the contract requires for some operations.
    """

    model: type[BaseModel] | None = None
    error_text: str | None = None
    ignores_query: bool = False

    async def read(self, request: Request, *, strict: bool = False) -> Any:
        """Return the input. Raise BadRequest if it is invalid. `strict` is true if authorization is enforced."""
        self._refuse_unknown_parameters(request)

    def error(self, violations: Sequence[FieldViolation] = ()) -> BadRequest:
        named = self.error_text is None or all(self.is_named(violation) for violation in violations)
        return BadRequest((_describe(violations) if named else None) or self.error_text, violations)

    def is_named(self, violation: FieldViolation) -> bool:
        """Return whether the error message names this violation even if `error_text` is set."""
        return False

    def validate(self, value: object) -> Any:
        """Return the parsed value as an instance of `model`. Raise BadRequest if the value is invalid."""
        assert self.model is not None  # noqa: S101 - only called if there is a model
        try:
            return self.model.model_validate(value)
        except ValidationError as error:
            details = error.errors(include_url=False, include_input=False)[:_MAX_VIOLATIONS]
            raise self.error([FieldViolation(_path(detail["loc"]), _rule(detail)) for detail in details]) from error

    def _refuse_unknown_parameters(self, request: Request, known: Container[str] = ()) -> None:
        if self.ignores_query:
            return
        # The message names the unknown parameters even if `error_text` is set.
        unknown = [_clean(name) for name in request.query_params if name not in known][:_MAX_VIOLATIONS]
        if unknown:
            violations = [FieldViolation(name, _UNKNOWN) for name in unknown]
            raise BadRequest(f"Unknown parameter: {', '.join(unknown)}", violations)


ANY_QUERY = partial(RequestInput, ignores_query=True)


@dataclass(frozen=True)
class JsonBody(RequestInput):
    """Reads a JSON body of at most `MAX_BODY_BYTES`, whatever its content type."""

    @override
    async def read(self, request: Request, *, strict: bool = False) -> Any:
        self._refuse_unknown_parameters(request)
        raw = bytearray()
        async for chunk in request.stream():
            raw += chunk
            if len(raw) > MAX_BODY_BYTES:
                raise self.too_long(bytes(raw))
        return self.parse(bytes(raw))

    def too_long(self, start: bytes) -> ApiError:
        """Return the error for a body that is too long. `start` is the part that has been read."""
        return self.error([FieldViolation("", f"is too long: at most {MAX_BODY_BYTES} bytes")])

    def parse(self, raw: bytes) -> Any:
        """Return the validated body. Raise BadRequest if the body is not JSON or is invalid."""
        try:
            # orjson rejects NaN, numbers too large for a double, lone surrogates and nesting deeper than 1,024 levels.
            value = orjson.loads(raw.decode("utf-8-sig"))
        except UnicodeDecodeError as error:
            raise BadRequest("Request body must be UTF-8", [FieldViolation("", "must be UTF-8")]) from error
        except orjson.JSONDecodeError as error:
            raise self.error([FieldViolation("", "must be JSON")]) from error
        return self.validate(value)


@dataclass(frozen=True)
class QueryParameters(RequestInput):
    """Reads the query. Unknown or repeated parameters are errors, so a mistyped filter doesn't match everything."""

    @override
    async def read(self, request: Request, *, strict: bool = False) -> Any:
        self._refuse_unknown_parameters(request, self.model.model_fields if self.model else ())
        counts = Counter(name for name, _ in request.query_params.multi_items())
        if repeated := sorted(name for name, count in counts.items() if count > 1):
            raise self.error([FieldViolation(name, "was given twice") for name in repeated])
        return self.validate(dict(request.query_params))


def _describe(violations: Iterable[FieldViolation]) -> str | None:
    """Return a message that lists the violations, or None if there are none."""
    return "; ".join(f"{violation.field or 'Request body'} {violation.rule}" for violation in violations) or None


def _path(location: tuple[int | str, ...]) -> str:
    return ".".join(_clean(str(part)) for part in location)


def _clean(name: str) -> str:
    """Make a field name from a request safe to show: short, and without control characters or spaces."""
    printable = "".join("?" if unicodedata.category(character)[0] in "CZ" else character for character in name)
    return mask_cards(printable if len(printable) <= _MAX_NAME_LENGTH else f"{printable[:_MAX_NAME_LENGTH]}…")


def _rule(detail: ErrorDetails) -> str:
    limits = detail.get("ctx", {})
    if detail["type"] == "string_too_short" and limits["min_length"] == 1:
        return "must not be empty"
    return _RULES.get(detail["type"], "is invalid").format_map(limits)
