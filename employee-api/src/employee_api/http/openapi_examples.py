"""Derives examples from JSON Schemas: a field's own example, or else one for its type."""

from collections.abc import Mapping
from typing import Any

from employee_api.http.openapi_document import JsonSchema

EXAMPLE_ID = "3f1c8a6e-52d0-4b7e-9a44-0c6d1f2e7b58"
_BY_FORMAT = {"uuid": EXAMPLE_ID, "date": "2026-03-31", "date-time": "2026-03-14T15:09:26.000000Z"}
_BY_TYPE = {"boolean": True, "integer": 1, "number": 1.0, "string": "text", "null": None}


def example_of(schema: JsonSchema, definitions: Mapping[str, JsonSchema]) -> Any:
    """Return a value that conforms to the schema, whose references lead to `definitions`."""
    if "$ref" in schema:
        schema = definitions[schema["$ref"].rpartition("/")[2]] | schema
    for key in ("examples", "enum"):
        if key in schema:
            return schema[key][0]
    for key in ("const", "default"):
        if schema.get(key) is not None:
            return schema[key]
    if "anyOf" in schema:
        return _example_of_choices(schema["anyOf"], definitions)
    if schema.get("type") == "array":
        return [example_of(schema["items"], definitions)]
    if schema.get("type") == "object":
        return {name: example_of(field, definitions) for name, field in schema.get("properties", {}).items()}
    return _BY_FORMAT.get(schema.get("format", ""), _BY_TYPE.get(schema.get("type", "")))


def _example_of_choices(choices: list[JsonSchema], definitions: Mapping[str, JsonSchema]) -> Any:
    example = example_of(choices[0], definitions)
    # Nothing is known about a text that has no example, so null is the better one where it is allowed.
    return None if example == _BY_TYPE["string"] and {"type": "null"} in choices else example
