"""Tests that pages are well-formed: browsers repair such errors, so axe in tests/up cannot find them."""

from html.parser import HTMLParser

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
REFERENCES = {"for", "aria-labelledby", "aria-describedby"}
VOID = {"meta", "link", "input", "img", "br", "hr"}


class Parser(HTMLParser):
    """Collects ids, references to ids, and tags that do not match."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.ids: list[str] = []
        self.references: set[str] = set()
        self.mismatches: list[str] = []
        self.open: list[str] = []
        self.feed(page)
        self.close()

    @override
    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            self.ids += [value or ""] if name == "id" else []
            self.references |= set((value or "").split()) if name in REFERENCES else set()
        if tag not in VOID:
            self.open.append(tag)

    @override
    def handle_endtag(self, tag: str) -> None:
        if tag not in VOID and (not self.open or self.open.pop() != tag):
            self.mismatches.append(tag)


async def pages(visitor: Visitor) -> dict[str, str]:
    """Return all pages by path, for a visitor with two lines in the cart and one order."""
    order = (await visitor.order()).headers["location"]
    await visitor.add_to_cart("wool-blanket")
    found = {path: await visitor.get(path) for path in (*PATHS, order)}
    found["errors"] = await visitor.post("/checkout", data={"key": "key-1"})
    await visitor.post("/checkout", data=order_fields())
    found["the total"] = await visitor.get("/checkout")
    return {path: response.text for path, response in found.items()}


async def test_tags_match_and_ids_are_unique_and_those_that_are_referred_to_exist(visitor: Visitor) -> None:
    for path, page in (await pages(visitor)).items():
        parsed = Parser(page)
        assert (path, parsed.mismatches + parsed.open) == (path, [])
        assert (path, sorted(parsed.ids)) == (path, sorted(set(parsed.ids)))
        assert (path, parsed.references - set(parsed.ids)) == (path, set())
