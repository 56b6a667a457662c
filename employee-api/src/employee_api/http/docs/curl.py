"""Writes the curl command of an operation, made of the examples in its description."""

import json
import shlex
from urllib.parse import urlencode

from employee_api.http.openapi_document import Operation, Parameter
from employee_api.http.outputs import JSON

SERVER = "http://localhost:8000"
COOKIES = "cookies.txt"


def curl_command(method: str, path: str, operation: Operation) -> str:
    """Return a command that sends the operation's examples, with the session of `cookies.txt` if it takes one."""
    parts = ["curl"]
    body = operation.get("requestBody")
    if method != "get" and not (method == "post" and body):
        parts.append(f"-X {method.upper()}")
    sets_cookie = "Set-Cookie" in _success(operation)
    if operation.get("security") or (sets_cookie and body is None):
        parts.append(f"-b {COOKIES}")
    if sets_cookie:
        parts.append(f"-c {COOKIES}")
    if body:
        example = json.dumps(body["content"][JSON]["example"], ensure_ascii=False)
        parts.append(f"--json {shlex.quote(example)}")
    parts.append(shlex.quote(SERVER + _target(path, operation.get("parameters", []))))
    return " ".join(parts)


def _success(operation: Operation) -> set[str]:
    return {header for response in operation["responses"].values() for header in response["headers"]}


def _target(path: str, parameters: list[Parameter]) -> str:
    for parameter in parameters:
        if parameter["in"] == "path":
            path = path.replace(f"{{{parameter['name']}}}", parameter["example"])
    query = {
        parameter["name"]: parameter["example"]
        for parameter in parameters
        if parameter["in"] == "query" and (parameter["required"] or "examples" in parameter["schema"])
    }
    return f"{path}?{urlencode(query)}" if query else path
