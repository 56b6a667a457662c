"""Pieces of HTML: every text is escaped where it becomes HTML."""

import re
from collections.abc import Iterable
from html import escape


def element(tag: str, *children: str, **attributes: str) -> str:
    """Return an element with children that are HTML; a trailing underscore of an attribute's name is cut."""
    described = "".join(f' {name.rstrip("_")}="{escape(value)}"' for name, value in attributes.items())
    return f"<{tag}{described}>{''.join(children)}</{tag}>"


def text(plain: str) -> str:
    """Return plain text as HTML, with `code` in backticks."""
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", escape(plain))


def code(plain: str) -> str:
    return element("code", escape(plain))


def link(target: str, plain: str) -> str:
    return element("a", code(plain), href=f"#{target}")


def paragraphs(*plain: str) -> str:
    return "".join(element("p", text(paragraph)) for paragraph in plain if paragraph)


def table(rows: Iterable[tuple[str, ...]]) -> str:
    """Return a table whose cells are HTML; the first cell of a row is its header."""
    lines = [
        element("tr", element("th", row[0], scope="row"), *(element("td", cell) for cell in row[1:])) for row in rows
    ]
    return element("table", *lines) if lines else ""
