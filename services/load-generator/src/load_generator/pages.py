"""Finds links and forms on the storefront's pages. Regular expressions suffice: the pages quote all attributes."""

import html
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass

_FORM = re.compile(r"<form\b([^>]*)>(.*?)</form>", re.DOTALL)
_INPUT = re.compile(r"<input\b([^>]*)>")
_ATTRIBUTE = re.compile(r'([a-z][a-z-]*)="([^"]*)"')
_LINK = re.compile(r'<a\b[^>]*?\bhref="([^"]*)"')


@dataclass(frozen=True, slots=True)
class Page:
    """The links and forms on a page. The text isn't kept, because hundreds of sessions each have a page in memory.

    Attributes:
        method: the request's HTTP method, before any redirects.
        name: the kind of page that was requested, such as `/products/{id}`.
        path: the page's path, after any redirects.
        hrefs: the distinct link targets, in page order.
        forms: the hidden fields of the first form for each action, by action.
    """

    method: str
    name: str
    path: str
    hrefs: tuple[str, ...]
    forms: Mapping[str, Mapping[str, str]]

    @classmethod
    def read(cls, method: str, name: str, path: str, text: str) -> "Page":
        hrefs = dict.fromkeys(sys.intern(html.unescape(href)) for href in _LINK.findall(text))
        forms = [(_attributes(tag).get("action", ""), _hidden(body)) for tag, body in reversed(_FORM.findall(text))]
        return cls(method, name, path, tuple(hrefs), dict(forms))

    def links(self, prefix: str) -> list[str]:
        return [href for href in self.hrefs if href.startswith(prefix)]

    def order_id(self) -> str | None:
        """Return the id of the order that this page shows, or None if this is not an order page."""
        kind, _, order_id = self.path.partition("?")[0].removeprefix("/").partition("/")
        return order_id if kind == "orders" and order_id and "/" not in order_id else None

    def order_ids(self) -> set[str]:
        return {href.removeprefix("/orders/").partition("/")[0] for href in self.links("/orders/")}


def _hidden(form: str) -> dict[str, str]:
    inputs = map(_attributes, _INPUT.findall(form))
    return {tag["name"]: tag.get("value", "") for tag in inputs if tag.get("type") == "hidden"}


def _attributes(text: str) -> dict[str, str]:
    return {name: html.unescape(value) for name, value in _ATTRIBUTE.findall(text)}


def name_of(path: str) -> str:
    """Return the name under which pages with similar paths are counted, such as `/products/{id}`."""
    kind, _, rest = path.partition("?")[0].removeprefix("/").partition("/")
    parameter = {"categories": "{name}", "products": "{id}", "orders": "{id}"}.get(kind)
    return f"/{kind}/{parameter}" if parameter and rest else f"/{kind}" + (f"/{rest}" if rest else "")
