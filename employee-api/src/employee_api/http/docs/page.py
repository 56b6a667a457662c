"""Renders the page `/docs`, which uses no scripts and loads no other files."""

import json
import re
import shlex
from collections.abc import Iterator
from html import escape
from pathlib import Path
from urllib.parse import urlencode

import orjson
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from employee_api.errors import ApiError
from employee_api.fields import MAX_PAGE_SIZE
from employee_api.http.inputs import MAX_BODY_BYTES
from employee_api.http.openapi import Json
from employee_api.http.problems import JSON, error_anchor
from employee_api.settings import AuthMode

CONTENT_SECURITY_POLICY = "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'; base-uri 'none'"
_SERVER = "http://localhost:8000"
_COOKIES = "cookies.txt"


def page(document: Json, mode: AuthMode) -> str:
    """Render an OpenAPI document as an HTML page that explains how to sign in with this `AUTH_MODE`."""
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=StrictUndefined,
        keep_trailing_newline=True,
    )
    meanings: dict[str, str] = orjson.loads(Path(__file__).with_name("errors.json").read_bytes())
    environment.filters |= {"text": _text, "anchor": error_anchor, "meaning": meanings.__getitem__}
    environment.filters["code"] = Markup("<code>{}</code>").format  # escapes the text
    errors = sorted((kind() for kind in ApiError.__subclasses__()), key=lambda error: (error.status, error.reason))
    return environment.get_template("page.html").render(
        document=document,
        mode=mode,
        server=_SERVER,
        cookies=_COOKIES,
        operations=list(_operations(document)),
        max_body=MAX_BODY_BYTES // 1024,
        max_page=MAX_PAGE_SIZE,
        errors=errors,
    )


def at_address(html: str, address: str) -> str:
    """Replace the placeholder in the page's commands with the server's address, such as `https://api.example.com`."""
    return html.replace(_SERVER, escape(address))


def _text(plain: str) -> Markup:
    """Escape plain text for HTML, turning text in backticks into `<code>` elements."""
    return Markup(re.sub(r"`([^`]+)`", r"<code>\1</code>", escape(plain)))  # noqa: S704 - the text is escaped


def _operations(document: Json) -> Iterator[Json]:
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            yield operation | {"method": method, "path": path, "curl": _curl_command(method, path, operation)}


def _curl_command(method: str, path: str, operation: Json) -> str:
    """Return a curl command that sends the operation's example values, with a session cookie if one is needed."""
    parts = ["curl"]
    body = operation.get("requestBody")
    if method != "get" and not (method == "post" and body):
        parts.append(f"-X {method.upper()}")
    sets_cookie = any("Set-Cookie" in response["headers"] for response in operation["responses"].values())
    if operation.get("security") or (sets_cookie and body is None):
        parts.append(f"-b {_COOKIES}")
    if sets_cookie:
        parts.append(f"-c {_COOKIES}")
    if body:
        parts.append(f"--json {shlex.quote(json.dumps(body['content'][JSON]['example'], ensure_ascii=False))}")
    # Quote the URL, because shells would expand an IPv6 address's brackets.
    parts.append(f"'{_SERVER}{_target(path, operation.get('parameters', []))}'")
    return " ".join(parts)


def _target(path: str, parameters: list[Json]) -> str:
    query = {}
    for parameter in parameters:
        if parameter["in"] == "path":
            path = path.replace(f"{{{parameter['name']}}}", parameter["example"])
        elif parameter["in"] == "query" and (parameter["required"] or "examples" in parameter["schema"]):
            query[parameter["name"]] = parameter["example"]
    return f"{path}?{urlencode(query)}" if query else path
