"""Renders the page: it needs no script, and fetches nothing."""

import ast
import inspect
from pathlib import Path
from string import Template
from typing import cast

from employee_api.errors import ApiError
from employee_api.fields import MAX_PAGE_SIZE
from employee_api.http.docs.html import code, element, paragraphs, text
from employee_api.http.docs.operations import COOKIES, SERVER, operation_section, schema_section
from employee_api.http.inputs import MAX_BODY_BYTES
from employee_api.http.openapi_parts import Json
from employee_api.http.problems import error_anchor
from employee_api.settings import AuthMode

CONTENT_SECURITY_POLICY = "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'; base-uri 'none'"
_FOLDER = Path(__file__).parent
_MODES = {
    AuthMode.OFF: (
        "This server runs with `AUTH_MODE=off`: it has no sessions, and every client may use every operation, except "
        "those on one's own account, which need a session."
    ),
    AuthMode.OBSERVE: (
        "This server runs with `AUTH_MODE=observe`: it refuses no request for its credentials, and records which "
        "requests it would refuse with `AUTH_MODE=enforce`. Sign in all the same, so that nothing changes for you then."
    ),
    AuthMode.ENFORCE: "This server runs with `AUTH_MODE=enforce`: most operations require a session.",
}


def page(document: Json, mode: AuthMode) -> str:
    """Return the HTML page of an OpenAPI document, with a guide to the API in this mode."""
    info, schemas = document["info"], document["components"]["schemas"].items()
    return _template("page.html").substitute(
        title=text(info["title"]),
        style=_read("style.css"),
        description=text(info["description"]),
        navigation=_navigation(document),
        mode=text(_MODES[mode]),
        sign_in="" if mode is AuthMode.OFF else _template("sign_in.html").substitute(cookies=COOKIES, server=SERVER),
        operations="".join(_tag_sections(document)),
        max_body=MAX_BODY_BYTES // 1024,
        max_page=MAX_PAGE_SIZE,
        errors=error_sections(),
        schemas="".join(schema_section(name, schema) for name, schema in schemas),
    )


def _read(name: str) -> str:
    return (_FOLDER / name).read_text(encoding="utf-8")


def _template(name: str) -> Template:
    return Template(_read(name))


def _navigation(document: Json) -> str:
    sections = [
        ("#sign-in", "Sign in"),
        *((f"#tag-{tag['name']}", tag["name"].capitalize()) for tag in document["tags"]),
        ("#limits", "Limits"),
        ("#errors", "Errors"),
        ("#schemas", "Schemas"),
        ("/openapi.json", "OpenAPI 3.1"),
    ]
    return " ".join(element("a", text(name), href=target) for target, name in sections)


def _tag_sections(document: Json) -> list[str]:
    by_tag: dict[str, list[str]] = {}
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            by_tag.setdefault(operation["tags"][0], []).append(operation_section(method, path, operation))
    return [
        element(
            "section",
            element("h2", text(tag["name"].capitalize()), id=f"tag-{tag['name']}"),
            element("p", text(tag["description"])),
            *by_tag[tag["name"]],
        )
        for tag in document["tags"]
    ]


def error_sections() -> str:
    """Return a section for each error, where the `type` of a problem document leads to."""
    errors = sorted(every_error(), key=lambda error: (error.status, error.reason))
    return "".join(
        element(
            "section",
            element("h3", code(error.reason), f" {int(error.status)}"),
            paragraphs(f"“{error.message}”", _docstring(type(error))),
            id=error_anchor(error.reason),
        )
        for error in errors
    )


def every_error() -> list[ApiError]:
    """Return an example of each error."""
    return [kind() for kind in _descendants(ApiError)]


def _docstring(kind: type[ApiError]) -> str:
    # Images run without docstrings (PYTHONOPTIMIZE), but not without sources.
    (definition,) = ast.parse(inspect.getsource(kind)).body
    return " ".join((ast.get_docstring(cast("ast.ClassDef", definition)) or "").split())


def _descendants(kind: type[ApiError]) -> set[type[ApiError]]:
    children = kind.__subclasses__()
    return set(children).union(*map(_descendants, children))
