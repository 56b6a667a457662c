"""Pages are well-formed and accessible as far as that can be read from HTML."""

import re
from collections import Counter
from collections.abc import Callable, Iterator
from html.parser import HTMLParser
from itertools import pairwise

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
    def handle_endtag(self, tag: str) -> None:
        if tag not in VOID and (not self._open or self._open.pop() != tag):
            self.mismatches.append(tag)

    def attributes(self, *tags: str) -> Iterator[dict[str, str]]:
        return (attributes for tag, attributes in self.elements if tag in tags)


async def pages(visitor: Visitor) -> dict[str, str]:
    """Return all pages, by path, of a visitor with two lines in the cart and an order."""
    order = (await visitor.order()).headers["location"]
    await visitor.add_to_cart("wool-blanket")
    found = {path: await visitor.get(path) for path in (*PATHS, order)}
    found["errors"] = await visitor.post("/checkout", data={"key": "key-1"})
    await visitor.post("/checkout", data=order_fields())
    found["the total"] = await visitor.get("/checkout")
    return {path: response.text for path, response in found.items()}


def parse(page: str) -> Parser:
    parser = Parser()
    parser.feed(page)
    parser.close()
    return parser


def mismatched_tags(page: Parser) -> list[str]:
    return page.mismatches + page._open


def repeated_ids(page: Parser) -> list[str]:
    ids = Counter(attributes["id"] for _, attributes in page.elements if "id" in attributes)
    return [name for name, count in ids.items() if count > 1]


def dangling_references(page: Parser) -> set[str]:
    ids = {attributes.get("id", "") for _, attributes in page.elements}
    names = ("for", "aria-labelledby", "aria-describedby")
    return {id_ for _, element in page.elements for name in names for id_ in element.get(name, "").split()} - ids


def fields_without_label(page: Parser) -> list[dict[str, str]]:
    labelled = {attributes["for"] for attributes in page.attributes("label")}
    fields = [field for field in page.attributes("input", "select") if field.get("type") != "hidden"]
    return [field for field in fields if field.get("id") not in labelled]


def pictures_without_text(page: Parser) -> list[dict[str, str]]:
    return [image for image in page.attributes("img") if "alt" not in image]


def skipped_levels_of_headings(page: Parser) -> list[tuple[int, int]]:
    levels = [0, *(int(tag[1]) for tag, _ in page.elements if re.fullmatch("h[1-6]", tag))]
    return [pair for pair in pairwise(levels) if pair[1] > pair[0] + 1]


def missing_parts(page: Parser) -> set[str]:
    """Return what is missing of a language, a title, the landmarks and a link to the content."""
    found = {f"{tag} {attributes.get('lang', attributes.get('href', ''))}".strip() for tag, attributes in page.elements}
    return {"html en", "title", "main", "header", "footer", "a #content"} - found


CHECKS: list[Callable[[Parser], object]] = [
    mismatched_tags,
    repeated_ids,
    dangling_references,
    fields_without_label,
    pictures_without_text,
    skipped_levels_of_headings,
    missing_parts,
]


async def test_pages_are_well_formed_and_accessible(visitor: Visitor) -> None:
    parsed = {path: parse(page) for path, page in (await pages(visitor)).items()}
    violations = [(check.__name__, path, check(page)) for path, page in parsed.items() for check in CHECKS]
    assert [violation for violation in violations if violation[2]] == []
