"""How operations write responses: JSON from pydantic types, or CSV files."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from http import HTTPStatus
from typing import Generic, TypeVar

from pydantic import TypeAdapter
from starlette.responses import Response
from typing_extensions import override

CSV = "text/csv; charset=utf-8"
JSON = "application/json"

OutputT = TypeVar("OutputT")
OutputT_contra = TypeVar("OutputT_contra", contravariant=True)


class ResponseOutput(ABC, Generic[OutputT_contra]):
    """The format in which a handler's result is sent, and the status for success."""

    status: HTTPStatus

    @abstractmethod
    def write(self, result: OutputT_contra, headers: Mapping[str, str]) -> Response: ...


@dataclass(frozen=True)
class JsonOutput(ResponseOutput[OutputT]):
    """JSON of any type that pydantic can serialize."""

    result_type: type[OutputT]
    status: HTTPStatus = HTTPStatus.OK

    @cached_property
    def adapter(self) -> TypeAdapter[OutputT]:
        return TypeAdapter(self.result_type)

    @override
    def write(self, result: OutputT, headers: Mapping[str, str]) -> Response:
        return Response(self.adapter.dump_json(result), int(self.status), headers, JSON)


@dataclass(frozen=True)
class CsvOutput(ResponseOutput[Response]):
    """A CSV file; the handler builds the response. `example` is one."""

    example: str

    status = HTTPStatus.OK

    @override
    def write(self, result: Response, headers: Mapping[str, str]) -> Response:
        return result
