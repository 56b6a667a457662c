"""Describes an operation: what it takes, what it returns, and a curl command."""

from collections.abc import Iterator

from employee_api.http.docs.curl import curl_command
from employee_api.http.docs.html import code, element, link, paragraphs, table, text
from employee_api.http.docs.schemas import type_of
from employee_api.http.openapi_document import Operation, Response
from employee_api.http.outputs import JSON
from employee_api.http.problems import PROBLEM_JSON, error_anchor


def operation_section(method: str, path: str, operation: Operation) -> str:
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
        element("pre", code(curl_command(method, path, operation)), id=f"curl-{name}"),
        id=f"operation-{name}",
    )


def _requests(operation: Operation) -> Iterator[tuple[str, ...]]:
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


def _response(response: Response) -> str:
    content = response.get("content", {})
    parts = [text(response["description"])]
    if PROBLEM_JSON in content:
        # Every error has the same format, which the section on errors describes.
        examples = content[PROBLEM_JSON].get("examples", {})
        parts = [
            f"{link(error_anchor(reason), reason)} {text(example['value']['detail'])}"
            for reason, example in examples.items()
        ]
    elif content:
        parts += [f"{code(media_type)} {type_of(each['schema'])}" for media_type, each in content.items()]
    headers = [code(name) for name in response["headers"] if name != "X-Request-ID"]
    return "<br>".join([*parts, *([f"with {', '.join(headers)}"] if headers else [])])
