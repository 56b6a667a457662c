"""What a browser reads in a page: its links and its forms. For the storefront's own HTML, with quoted attributes."""

import html
import re
from collections.abc import Mapping
from dataclasses import dataclass

_FORM = re.compile(r"<form\b([^>]*)>(.*?)</form>", re.DOTALL)
_INPUT = re.compile(r"<input\b([^>]*)>")
_ATTRIBUTE = re.compile(r'([a-z][a-z-]*)="([^"]*)"')
_LINK = re.compile(r'<a\b[^>]*?\bhref="([^"]*)"')


@dataclass(frozen=True, slots=True)
class Form:
    """A form: the path that it is posted to, and its hidden fields."""

    action: str
    hidden: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Page:
    """A page as a person sees it.

    Attributes:
        method: of the request that led to it, before redirects.
        name: the kind of page that was requested, such as `/products/{id}`.
        path: where redirects ended.
        text: its HTML.
    """

    method: str
    name: str
    path: str
    text: str

    def links(self, prefix: str) -> list[str]:
        """Return the distinct paths of links that begin with a prefix, in their order on the page."""
        found = (html.unescape(href) for href in _LINK.findall(self.text))
        return list(dict.fromkeys(href for href in found if href.startswith(prefix)))

    def form(self, action: str) -> Form | None:
        """Return the first form that is posted to a path, or None."""
        for attributes, body in _FORM.findall(self.text):
            if _attributes(attributes).get("action") == action:
                inputs = map(_attributes, _INPUT.findall(body))
                hidden = {each["name"]: each.get("value", "") for each in inputs if each.get("type") == "hidden"}
                return Form(action, hidden)
        return None

    def order_id(self) -> str | None:
        """Return the id of the order that this page is about, or None if it is another page."""
        kind, _, order_id = self.path.partition("?")[0].removeprefix("/").partition("/")
        return order_id if kind == "orders" and order_id and "/" not in order_id else None

    def order_ids(self) -> set[str]:
        """Return the ids of all orders that this page links to."""
        return {href.removeprefix("/orders/").partition("/")[0] for href in self.links("/orders/")}


def _attributes(text: str) -> dict[str, str]:
    return {name: html.unescape(value) for name, value in _ATTRIBUTE.findall(text)}


def name_of(path: str) -> str:
    """Return the kind of page at a path, such as `/products/{id}`: one name in the statistics for all products."""
    kind, _, rest = path.partition("?")[0].removeprefix("/").partition("/")
    parameter = {"categories": "{name}", "products": "{id}", "orders": "{id}"}.get(kind)
    return f"/{kind}/{parameter}" if parameter and rest else f"/{kind}" + (f"/{rest}" if rest else "")
