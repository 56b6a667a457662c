"""Describes JSON Schemas in words: types with their limits, and the fields of objects."""

from employee_api.http.docs.html import code, element, link, paragraphs, table, text
from employee_api.http.openapi_document import JsonSchema

_RANGES = (
    ("minLength", "maxLength", "characters"),
    ("minItems", "maxItems", "items"),
    ("minimum", "maximum", ""),
)


def schema_section(name: str, schema: JsonSchema) -> str:
    """Return the section about a model, which links of its name lead to."""
    required = schema.get("required", [])
    rows = [
        (code(field), type_of(value) + ("" if field in required else ", optional"), text(value.get("description", "")))
        for field, value in schema.get("properties", {}).items()
    ]
    values = element("p", type_of(schema)) if "enum" in schema else ""
    description = paragraphs(schema.get("description", ""))
    return element("section", element("h3", code(name)), description, values, table(rows), id=f"schema-{name}")


def type_of(schema: JsonSchema) -> str:
    """Return the type of a value with its limits, as HTML."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return link(f"schema-{name}", name)
    if "anyOf" in schema:
        return " or ".join(type_of(choice) for choice in schema["anyOf"])
    if "enum" in schema:
        return "one of " + ", ".join(code(value) for value in schema["enum"])
    if "const" in schema:
        return code(str(schema["const"]).lower())
    if schema.get("type") == "array":
        return f"list of {type_of(schema['items'])}{_limits(schema)}"
    name = schema.get("format") or schema.get("type", "any value")
    return text(name) + _limits(schema)


def _limits(schema: JsonSchema) -> str:
    found = []
    for low, high, unit in _RANGES:
        if low in schema and high in schema:
            found.append(f"{schema[low]:,} to {schema[high]:,} {unit}".strip())
        elif low in schema:
            found.append(f"at least {schema[low]:,} {unit}".strip())
        elif high in schema:
            found.append(f"at most {schema[high]:,} {unit}".strip())
    if schema.get("default") not in (None, ""):
        found.append(f"default {schema['default']}")
    return f", {text('; '.join(found))}" if found else ""
