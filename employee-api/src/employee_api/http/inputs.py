"""What operations read from requests: JSON bodies and query parameters, validated by pydantic models."""

from abc import ABC, abstractmethod
from collections.abc import Container, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

import orjson
from pydantic import BaseModel, ValidationError
from starlette.requests import Request
from typing_extensions import override

from chassis.errors import FieldViolation
from employee_api.errors import BadRequest
from employee_api.http.violations import describe, unknown_names, violations_of

MAX_BODY_BYTES = 64 * 1024

InputT_co = TypeVar("InputT_co", covariant=True)
ModelT = TypeVar("ModelT", bound=BaseModel)


class RequestInput(ABC, Generic[InputT_co]):
    """The part of a request that an operation's handler takes."""

    @abstractmethod
    async def read(self, request: Request) -> InputT_co:
        """Read and validate the input. Raises BadRequest."""


@dataclass(frozen=True)
class NoInput(RequestInput[None]):
    """No body and no query parameters. A body is ignored.

    Attributes:
        ignores_query: accept any query, as the documented operations do.
    """

    ignores_query: bool = False

    @override
    async def read(self, request: Request) -> None:
        if not self.ignores_query:
            _refuse_unknown_parameters(request, ())


@dataclass(frozen=True)
class ModelInput(RequestInput[ModelT]):
    """Input that a pydantic model validates.

    Attributes:
        model: the model.
        error_text: the one text for all invalid input of the operation. By default the text names the invalid fields.
    """

    model: type[ModelT]
    error_text: str | None = None

    def error(self, text: str = "Invalid request", violations: Sequence[FieldViolation] = ()) -> BadRequest:
        """Return the error for invalid input, with `text` unless the operation has its own."""
        return BadRequest(self.error_text or text, violations)

    def validate(self, value: object) -> ModelT:
        """Validate a parsed value. Raises BadRequest."""
        try:
            return self.model.model_validate(value)
        except ValidationError as error:
            violations = violations_of(error)
            raise self.error(describe(violations), violations) from error


@dataclass(frozen=True)
class JsonBody(ModelInput[ModelT]):
    """A JSON body of at most `max_bytes`, whatever its content type, and no query parameters.

    Attributes:
        ignores_query: accept any query, as the documented operations do.
    """

    max_bytes: int = MAX_BODY_BYTES
    ignores_query: bool = field(default=False, kw_only=True)

    @override
    async def read(self, request: Request) -> ModelT:
        if not self.ignores_query:
            _refuse_unknown_parameters(request, ())
        raw = bytearray()
        async for chunk in request.stream():
            raw += chunk
            if len(raw) > self.max_bytes:
                raise self._body_error(f"is too long: at most {self.max_bytes} bytes")
        return self.parse(bytes(raw))

    def parse(self, raw: bytes) -> ModelT:
        """Parse and validate a body. Raises BadRequest."""
        try:
            # Rejects NaN, numbers beyond a double, invalid UTF-8, lone surrogates and nesting deeper than 1,024.
            value = orjson.loads(raw)
        except orjson.JSONDecodeError as error:
            raise self._body_error("must be JSON") from error
        return self.validate(value)

    def _body_error(self, rule: str) -> BadRequest:
        violations = [FieldViolation("", rule)]
        return self.error(describe(violations), violations)


@dataclass(frozen=True)
class QueryParameters(ModelInput[ModelT]):
    """The query string. Unknown parameters are errors, as is repeating one: a mistyped filter must not match all."""

    @override
    async def read(self, request: Request) -> ModelT:
        _refuse_unknown_parameters(request, self.model.model_fields)
        names = [name for name, _ in request.query_params.multi_items()]
        if repeated := sorted({name for name in names if names.count(name) > 1}):
            violations = [FieldViolation(name, "was given twice") for name in repeated]
            raise self.error(describe(violations), violations)
        return self.validate(dict(request.query_params))


def _refuse_unknown_parameters(request: Request, known: Container[str]) -> None:
    # The error names the parameter even where the operation has one text for invalid values.
    if unknown := unknown_names(name for name in request.query_params if name not in known):
        raise BadRequest(f"Unknown parameter: {', '.join(violation.field for violation in unknown)}", unknown)
