"""What operations read from requests: JSON bodies and query parameters, validated by pydantic models."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Generic, TypeVar

import orjson
from pydantic import BaseModel, ValidationError
from starlette.requests import Request
from typing_extensions import override

from employee_api.errors import BadRequest

MAX_BODY_BYTES = 64 * 1024

InputT_co = TypeVar("InputT_co", covariant=True)
ModelT = TypeVar("ModelT", bound=BaseModel)


class RequestInput(ABC, Generic[InputT_co]):
    """The part of a request that an operation's handler takes."""

    @abstractmethod
    async def read(self, request: Request) -> InputT_co:
        """Read and validate the input. Raises BadRequest."""


class NoInput(RequestInput[None]):
    @override
    async def read(self, request: Request) -> None:
        return None


@dataclass(frozen=True)
class ModelInput(RequestInput[ModelT]):
    """Input that a pydantic model validates.

    Attributes:
        model: the model.
        error_text: the one text for all invalid input of the operation. By default the text names the invalid fields.
    """

    model: type[ModelT]
    error_text: str | None = None

    def error(self, text: str = "Invalid request") -> BadRequest:
        """Return the error for invalid input, with `text` unless the operation has its own."""
        return BadRequest(self.error_text or text)

    def validate(self, value: object) -> ModelT:
        """Validate a parsed value. Raises BadRequest."""
        try:
            return self.model.model_validate(value)
        except ValidationError as error:
            # The text must not contain values, nor field names that are not ours.
            names = {str(problem["loc"][0]) for problem in error.errors() if problem["loc"]}
            fields = sorted(names & set(self.model.model_fields))
            text = f"Invalid value for {', '.join(fields)}" if fields else "Unknown field, or not an object"
            raise self.error(text) from error


@dataclass(frozen=True)
class JsonBody(ModelInput[ModelT]):
    """A JSON body of at most `max_bytes`, whatever its content type."""

    max_bytes: int = MAX_BODY_BYTES

    @override
    async def read(self, request: Request) -> ModelT:
        raw = bytearray()
        async for chunk in request.stream():
            raw += chunk
            if len(raw) > self.max_bytes:
                raise self.error("Request body too large")
        return self.parse(bytes(raw))

    def parse(self, raw: bytes) -> ModelT:
        """Parse and validate a body. Raises BadRequest."""
        try:
            # Rejects NaN, numbers beyond a double, invalid UTF-8, lone surrogates and nesting deeper than 1,024.
            value = orjson.loads(raw)
        except orjson.JSONDecodeError as error:
            raise self.error("Request body must be JSON") from error
        return self.validate(value)


@dataclass(frozen=True)
class QueryParameters(ModelInput[ModelT]):
    """The query string. Unknown parameters are ignored; repeating a known one is an error."""

    @override
    async def read(self, request: Request) -> ModelT:
        items = [item for item in request.query_params.multi_items() if item[0] in self.model.model_fields]
        values = dict(items)
        if len(values) < len(items):
            raise self.error("A parameter was given twice")
        return self.validate(values)
