"""The JSON Schemas of request and response models, as references to definitions that contain each model once."""

from collections.abc import Iterable, Mapping
from typing import Any

from pydantic import BaseModel, TypeAdapter
from pydantic.json_schema import JsonSchemaMode

from employee_api.http.inputs import JsonBody, QueryParameters
from employee_api.http.openapi_document import JsonSchema
from employee_api.http.operations import OperationDescription
from employee_api.http.outputs import JsonOutput
from employee_api.schemas import Error, Problem

_REFERENCE = "#/components/schemas/{model}"


class Schemas:
    """The schemas of all bodies and query parameters of the operations."""

    def __init__(self, operations: Iterable[OperationDescription]) -> None:
        inputs = [operation.input for operation in operations]
        outputs = [operation.output for operation in operations]
        bodies = {each.model for each in inputs if isinstance(each, JsonBody)}
        queries = {each.model for each in inputs if isinstance(each, QueryParameters)}
        adapters: list[tuple[str, JsonSchemaMode, TypeAdapter[Any]]] = [
            *((str(model), "validation", TypeAdapter(model)) for model in sorted(bodies | queries, key=str)),
            *((str(out.result_type), "serialization", out.adapter) for out in outputs if isinstance(out, JsonOutput)),
            *((str(model), "serialization", TypeAdapter(model)) for model in (Error, Problem)),
        ]
        self._schemas, generated = TypeAdapter.json_schemas(adapters, ref_template=_REFERENCE)
        definitions: dict[str, JsonSchema] = generated["$defs"]
        self._queries = {model: self._definition(model, definitions) for model in queries}
        # Parameters are described one by one.
        unused = {model.__name__ for model in queries - bodies}
        self.definitions = {name: schema for name, schema in definitions.items() if name not in unused}

    def of_input(self, model: type[BaseModel]) -> JsonSchema:
        return dict(self._schemas[str(model), "validation"])

    def of_output(self, result_type: type[Any]) -> JsonSchema:
        return dict(self._schemas[str(result_type), "serialization"])

    def of_query(self, model: type[BaseModel]) -> JsonSchema:
        """Return the schema of a query, an object of its parameters."""
        return self._queries[model]

    def _definition(self, model: type[BaseModel], definitions: Mapping[str, JsonSchema]) -> JsonSchema:
        name: str = self.of_input(model)["$ref"].rpartition("/")[2]
        return definitions[name]
