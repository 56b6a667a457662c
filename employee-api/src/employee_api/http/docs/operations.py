"""Describes operations: what they take, what they return, and a curl command."""

import json
import shlex
from collections.abc import Iterator
from urllib.parse import urlencode

from employee_api.http.docs.html import code, element, link, paragraphs, table, text
from employee_api.http.openapi_parts import Json
from employee_api.http.problems import JSON, PROBLEM_JSON, error_anchor

SERVER = "http://localhost:8000"
COOKIES = "cookies.txt"


def operation_section(method: str, path: str, operation: Json) -> str:
    """Return the section about an operation, closed until it is opened."""
    name = operation["operationId"]
    heading = element("summary", element("b", method.upper()), " ", code(path), " ", text(operation["summary"]))
    requests = list(_requests(operation))
    return element(
        "details",
        heading,
        paragraphs(operation["description"]),
        element("h3", "Request") + table(requests) if requests else "",
        element("h3", "Responses"),
        table((code(status), _response(response)) for status, response in operation["responses"].items()),
        element("pre", code(_curl_command(method, path, operation)), id=f"curl-{name}"),
        id=f"operation-{name}",
    )


def schema_section(name: str, schema: Json) -> str:
    """Return the section about a model, which links of its name lead to."""
    required = schema.get("required", [])
    rows = [
        (code(field), type_of(value) + ("" if field in required else ", optional"), text(value.get("description", "")))
        for field, value in schema.get("properties", {}).items()
    ]
    values = element("p", type_of(schema)) if "enum" in schema else ""
    description = paragraphs(schema.get("description", ""))
    return element("section", element("h3", code(name)), description, values, table(rows), id=f"schema-{name}")


def type_of(schema: Json) -> str:
    """Return the type of a value as HTML, with its limits as JSON Schema names them."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return link(f"schema-{name}", name)
    if "anyOf" in schema:
        return " or ".join(type_of(choice) for choice in schema["anyOf"])
    if "enum" in schema:
        return "one of " + ", ".join(code(value) for value in schema["enum"])
    name = schema.get("format") or schema.get("type", "any value")
    kind = f"list of {type_of(schema['items'])}" if name == "array" else text(name)
    limits = [
        f"{key} {schema[key]}"
        for key in ("const", "minLength", "maxLength", "minItems", "maxItems", "minimum", "maximum", "default")
        if schema.get(key) not in (None, "")
    ]
    return ", ".join([kind, *map(text, limits)])


def _requests(operation: Json) -> Iterator[tuple[str, ...]]:
    for parameter in operation.get("parameters", []):
        presence = "" if parameter["required"] else ", optional"
        yield (
            code(parameter["name"]),
            f"{parameter['in']}, {type_of(parameter['schema'])}{presence}",
            text(parameter.get("description", "")),
        )
    if "requestBody" in operation:
        body = operation["requestBody"]
        yield "body", type_of(body["content"][JSON]["schema"]), text(body["description"])


def _response(response: Json) -> str:
    content = response.get("content", {})
    parts = [text(response["description"])]
    if PROBLEM_JSON in content:
        # Every error has the same format, which the section on errors describes.
        parts = [
            f"{link(error_anchor(reason), reason)} {text(example['value']['detail'])}"
            for reason, example in content[PROBLEM_JSON]["examples"].items()
        ]
    else:
        parts += [f"{code(media_type)} {type_of(described['schema'])}" for media_type, described in content.items()]
    headers = [code(name) for name in response["headers"] if name != "X-Request-ID"]
    return "<br>".join([*parts, *([f"with {', '.join(headers)}"] if headers else [])])


def _curl_command(method: str, path: str, operation: Json) -> str:
    """Return a command that sends the operation's examples, with the session of `cookies.txt` if it takes one."""
    parts = ["curl"]
    body = operation.get("requestBody")
    if method != "get" and not (method == "post" and body):
        parts.append(f"-X {method.upper()}")
    sets_cookie = any("Set-Cookie" in response["headers"] for response in operation["responses"].values())
    if operation.get("security") or (sets_cookie and body is None):
        parts.append(f"-b {COOKIES}")
    if sets_cookie:
        parts.append(f"-c {COOKIES}")
    if body:
        parts.append(f"--json {shlex.quote(json.dumps(body['content'][JSON]['example'], ensure_ascii=False))}")
    parts.append(shlex.quote(SERVER + _target(path, operation.get("parameters", []))))
    return " ".join(parts)


def _target(path: str, parameters: list[Json]) -> str:
    query = {}
    for parameter in parameters:
        if parameter["in"] == "path":
            path = path.replace(f"{{{parameter['name']}}}", parameter["example"])
        elif parameter["in"] == "query" and (parameter["required"] or "examples" in parameter["schema"]):
            query[parameter["name"]] = parameter["example"]
    return f"{path}?{urlencode(query)}" if query else path
