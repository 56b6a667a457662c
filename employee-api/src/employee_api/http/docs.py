"""Renders the OpenAPI document as an HTML page that needs no script and fetches nothing."""

import json
from html import escape

from employee_api.http.openapi_document import Document, JsonSchema, MediaType, Operation

_STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 60rem; padding: 0 1rem; color: #1f2937 }
h2 { border-bottom: 1px solid #d1d5db; margin-top: 2.5rem } code, pre { font: 14px/1.4 ui-monospace, monospace }
details { border: 1px solid #d1d5db; border-radius: 6px; margin: .5rem 0; padding: .4rem .8rem }
summary { cursor: pointer } summary b { display: inline-block; min-width: 4.5rem } summary span { color: #6b7280 }
table { border-collapse: collapse; width: 100% } td { border-top: 1px solid #e5e7eb; padding: .25rem .5rem }
td { vertical-align: top } td:first-child { white-space: nowrap; width: 8rem }
pre { background: #f3f4f6; border-radius: 6px; overflow: auto; padding: .8rem }
@media (prefers-color-scheme: dark) { body { background: #111827; color: #e5e7eb } pre { background: #1f2937 } }
"""

CONTENT_SECURITY_POLICY = "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'; base-uri 'none'"


def page(document: Document) -> str:
    """Return the HTML page of an OpenAPI document."""
    by_tag: dict[str, list[str]] = {}
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            by_tag.setdefault(operation["tags"][0], []).append(_operation(method, path, operation))
    info = document["info"]
    body = "".join(f"<h2>{escape(tag)}</h2>{''.join(operations)}" for tag, operations in by_tag.items())
    schemas = "".join(
        f'<details id="{escape(name)}"><summary><code>{escape(name)}</code></summary>{_json(schema)}</details>'
        for name, schema in document["components"]["schemas"].items()
    )
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{escape(info["title"])}</title>'
        f'<meta name="viewport" content="width=device-width"><style>{_STYLE}</style></head><body>'
        f'<h1>{escape(info["title"])}</h1><p>{escape(info["description"])} For programs: <a href="/openapi.json">'
        f"openapi.json</a>.</p>{body}<h2>Schemas</h2>{schemas}</body></html>"
    )


def _operation(method: str, path: str, operation: Operation) -> str:
    rows = [
        (f"{parameter['name']} ({parameter['in']})", escape(parameter.get("description", "")))
        for parameter in operation.get("parameters", [])
    ]
    if "requestBody" in operation:
        rows.append(("body", _content(operation["requestBody"]["content"])))
    for status, response in operation["responses"].items():
        rows.append((status, f"{escape(response['description'])} {_content(response.get('content', {}))}"))
    cells = "".join(f"<tr><td>{escape(name)}</td><td>{text}</td></tr>" for name, text in rows)
    return (
        f"<details><summary><b>{escape(method.upper())}</b> <code>{escape(path)}</code> "
        f"<span>{escape(operation['summary'])}</span></summary><table>{cells}</table></details>"
    )


def _content(content: dict[str, MediaType]) -> str:
    return " ".join(f"<code>{escape(name)}</code> {_schema(value['schema'])}" for name, value in content.items())


def _schema(schema: JsonSchema) -> str:
    if schema.get("type") == "array":
        return f"list of {_schema(schema['items'])}"
    if "$ref" in schema:
        name = escape(schema["$ref"].rpartition("/")[2])
        return f'<a href="#{name}">{name}</a>'
    return escape(schema.get("type", "anything"))


def _json(schema: JsonSchema) -> str:
    return f"<pre>{escape(json.dumps(schema, indent=2, ensure_ascii=False))}</pre>"
