"""Base classes for request and response models, and models that several features share.

The API description is generated from the models, including their docstrings.
"""

import uuid
from typing import Any, Generic, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field

ItemT = TypeVar("ItemT")


class Input(BaseModel):
    """A request body or query; unknown fields are ignored."""

    model_config = ConfigDict(frozen=True, extra="ignore")


class StrictInput(Input):
    """A request body in which unknown fields are errors."""

    model_config = ConfigDict(extra="forbid")


def _without_defaults(schema: dict[str, Any]) -> None:
    # A patch leaves omitted fields unchanged, so its model's defaults must not be documented.
    for field in schema["properties"].values():
        field.pop("default", None)


class Patch(StrictInput):
    """Changes to some fields. `model_dump(exclude_unset=True)` returns only the fields in the request."""

    model_config = ConfigDict(json_schema_extra=_without_defaults)


class Output(BaseModel):
    """A response body."""

    model_config = ConfigDict(frozen=True, from_attributes=True, extra="ignore")

    @classmethod
    def columns(cls, table: Any) -> list[Any]:
        """Return the table's columns whose names match this model's fields."""
        return [getattr(table, name) for name in cls.model_fields]


class Page(Output, Generic[ItemT]):
    """One page of a list."""

    items: list[ItemT]
    next: str | None = Field(description="The `cursor` of the next page; null on the last page")


class Success(Output):
    """The operation succeeded."""

    success: Literal[True] = True


class Deleted(Success):
    """The id of the deleted item."""

    id: uuid.UUID


class Error(Output):
    """A description of an error."""

    error: str = Field(examples=["Task not found"])


class InvalidField(Output):
    """An invalid field, query parameter or header of the request, and what is wrong with it."""

    field: str = Field(examples=["title"])
    detail: str = Field(examples=["is too long: at most 500 characters"])


class Problem(Output):
    """A machine-readable description of an error (RFC 9457)."""

    type: str = Field(description="The path of the explanation", examples=["/docs#error-task-not-found"])
    title: str = Field(examples=["Task not found"])
    status: int = Field(examples=[404])
    detail: str = Field(examples=["Task not found"])
    code: str = Field(description="Never changes, unlike the texts", examples=["TASK_NOT_FOUND"])
    errors: list[InvalidField]
