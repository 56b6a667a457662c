"""Pages are well-formed and accessible as far as that can be read from HTML."""

import re
from collections import Counter
from collections.abc import Callable, Iterator
from html.parser import HTMLParser
from itertools import pairwise

import pytest
from typing_extensions import override

from shop_kit.storefront import Visitor, order_fields

PATHS = [
    "/",
    "/search?q=wool",
    "/categories/kitchen",
    "/products/copper-kettle",
    "/cart",
    "/checkout",
    "/orders",
    "/nope",
]
VOID = {"meta", "link", "input", "img", "br", "hr"}


class Parser(HTMLParser):
    """Collects elements, and tags that do not match."""

    def __init__(self) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str]]] = []
        self.mismatches: list[str] = []
        self._open: list[str] = []

    @override
    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, {name: value or "" for name, value in attrs}))
        if tag not in VOID:
            self._open.append(tag)

    @override
    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, {name: value or "" for name, value in attrs}))

    @override
    def handle_endtag(self, tag: str) -> None:
        if not self._open or self._open.pop() != tag:
            self.mismatches.append(tag)

    def attributes(self, *tags: str) -> Iterator[dict[str, str]]:
        return (attributes for tag, attributes in self.elements if tag in tags)


@pytest.fixture
async def pages(visitor: Visitor) -> dict[str, Parser]:
    """All pages, by path, of a visitor with two lines in the cart and an order."""
    order = (await visitor.order()).headers["location"]
    await visitor.add_to_cart("wool-blanket")
    found = {path: await visitor.get(path) for path in (*PATHS, order)}
    found["errors"] = await visitor.post("/checkout", data={"key": "key-1"})
    await visitor.post("/checkout", data=order_fields())
    found["the total"] = await visitor.get("/checkout")
    return {path: parse(response.text) for path, response in found.items()}


def parse(page: str) -> Parser:
    parser = Parser()
    parser.feed(page)
    parser.close()
    return parser


def violations(pages: dict[str, Parser], check: Callable[[Parser], object]) -> dict[str, object]:
    """Return what a check finds on each page where it finds something."""
    return {path: found for path, parsed in pages.items() if (found := check(parsed))}


async def test_every_tag_is_closed(pages: dict[str, Parser]) -> None:
    assert violations(pages, lambda page: page.mismatches + page._open) == {}


async def test_ids_are_unique(pages: dict[str, Parser]) -> None:
    def repeated(page: Parser) -> list[str]:
        ids = Counter(attributes["id"] for _, attributes in page.elements if "id" in attributes)
        return [name for name, count in ids.items() if count > 1]

    assert violations(pages, repeated) == {}


async def test_references_lead_to_elements(pages: dict[str, Parser]) -> None:
    def dangling(page: Parser) -> set[str]:
        ids = {attributes.get("id", "") for _, attributes in page.elements}
        names = ("for", "aria-labelledby", "aria-describedby")
        return {id_ for _, element in page.elements for name in names for id_ in element.get(name, "").split()} - ids

    assert violations(pages, dangling) == {}


async def test_every_field_has_a_label(pages: dict[str, Parser]) -> None:
    def unlabelled(page: Parser) -> list[dict[str, str]]:
        labelled = {attributes["for"] for attributes in page.attributes("label")}
        fields = [field for field in page.attributes("input", "select") if field.get("type") != "hidden"]
        return [field for field in fields if field.get("id") not in labelled]

    assert violations(pages, unlabelled) == {}


async def test_every_picture_has_an_alternative_text(pages: dict[str, Parser]) -> None:
    assert violations(pages, lambda page: [image for image in page.attributes("img") if "alt" not in image]) == {}


async def test_headings_begin_with_the_first_level_and_skip_none(pages: dict[str, Parser]) -> None:
    def skipped(page: Parser) -> list[tuple[int, int]]:
        levels = [0, *(int(tag[1]) for tag, _ in page.elements if re.fullmatch("h[1-6]", tag))]
        return [pair for pair in pairwise(levels) if pair[1] > pair[0] + 1]

    assert violations(pages, skipped) == {}


async def test_a_page_has_a_language_a_title_and_a_link_to_its_content(pages: dict[str, Parser]) -> None:
    def missing(page: Parser) -> set[str]:
        found = {
            f"{tag} {attributes.get('lang', attributes.get('href', ''))}".strip() for tag, attributes in page.elements
        }
        return {"html en", "title", "main", "header", "footer", "a #content"} - found

    assert violations(pages, missing) == {}
