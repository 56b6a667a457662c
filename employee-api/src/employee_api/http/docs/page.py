"""Renders the page: it needs no script, and fetches nothing."""

from pathlib import Path

from employee_api.http.docs.guide import errors_section, limits_section, sign_in_section
from employee_api.http.docs.html import element, text
from employee_api.http.docs.operations import operation_section, schema_section
from employee_api.http.openapi_parts import Json
from employee_api.settings import AuthMode

CONTENT_SECURITY_POLICY = "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'; base-uri 'none'"
_STYLE = Path(__file__).with_name("style.css").read_text()
_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>{title}</title>
<meta name="viewport" content="width=device-width"><meta name="color-scheme" content="light dark">
<style>{style}</style></head>
<body><header><h1>{title}</h1><p>{description}</p><nav>{navigation}</nav></header><main>{content}</main></body></html>
"""


def page(document: Json, mode: AuthMode) -> str:
    """Return the HTML page of an OpenAPI document, with a guide to the API in this mode."""
    info = document["info"]
    content = [sign_in_section(document, mode), *_tag_sections(document), limits_section(), errors_section()]
    schemas = [schema_section(name, schema) for name, schema in document["components"]["schemas"].items()]
    content.append(element("section", element("h2", "Schemas", id="schemas"), *schemas))
    return _PAGE.format(
        title=text(info["title"]),
        style=_STYLE,
        description=text(info["description"]),
        navigation=_navigation(document),
        content="".join(content),
    )


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
