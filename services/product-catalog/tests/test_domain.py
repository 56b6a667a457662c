import unicodedata
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from product_catalog_service.domain import Catalog, Product, ProductNotFound
from shop_kit.failing import rejecting


def product(product_id: str, name: str, description: str = "Good.", *categories: str) -> Product:
    return Product(product_id, name, description, f"/{product_id}.jpg", Decimal(5), categories or ("things",))


MUG = product("mug", "Stoneware mug", "Holds tea; 100% clay.", "kitchen")
KETTLE = product("kettle", "Copper kettle", "For tea, not for a mug.", "kitchen")
TEA = product("tea", "Green tea", "Leaves from the hills.", "pantry")
TIN = product("tin", "Round tin", "Keeps leaves dry.", "tea", "pantry")
CAFE = product("cafe", "Café chair", "A STRASSE favourite, snake_case free.", "furniture")

CATALOG = Catalog([MUG, KETTLE, TIN, TEA, CAFE])

FOUND: dict[str, dict[str, list[Product]]] = {
    "the name outranks the description, and the description a category": {"tea": [TEA, MUG, KETTLE, TIN]},
    "every word must match": {"leaves pantry": [TIN, TEA], "leaves kitchen": []},
    "order and repetition of words do not matter": {query: [MUG, KETTLE] for query in ("mug tea", "tea, mug tea!")},
    "a prefix of a word matches, its middle does not": {"stonew": [MUG], "oneware": []},
    "neither case nor normalization matters": {
        query: [CAFE] for query in ("CAFÉ", "cafe\u0301", "caf\u00e9", "straße", "Strasse")
    },
    "punctuation separates words": {"100%": [MUG], "snake-case": [CAFE]},
    "wildcards and patterns have no meaning": {
        query: [] for query in ("m.g", "m_g", "%ug", "(mug|tin)", "mug*tin", "%tin OR mug")
    },
    "without a word nothing is found": {
        query: [] for query in ("", " ", "%", "_", ".*", "\\", "(", "'", "\n\t", "\u0301")
    },
}


@pytest.mark.parametrize("claim", FOUND)
def test_products_are_found_by_words(claim: str) -> None:
    assert {query: CATALOG.search(query) for query in FOUND[claim]} == FOUND[claim]


def test_an_unknown_id_is_not_found_and_a_malformed_one_rejected() -> None:
    for unknown in ("spoon", "MUG", "mug ", "' OR 1=1 --"):
        with pytest.raises(ProductNotFound):
            CATALOG.find(unknown)
    for malformed in ("", "x" * 65):
        with rejecting("id"):
            CATALOG.find(malformed)


@pytest.mark.parametrize(
    ("name", "query"),
    [
        *(
            ("Café crème", query)
            for query in ("cafe creme", "CAFÉ creme", "cafés", "crem", "cafe-creme", "\uff23\uff21\uff26\uff25")
        ),
        *(("Cafe creme", query) for query in ("café", "Crème", "cafés")),
        *(("Smørrebrød", query) for query in ("smorrebrod", "SMØRREBRØD")),
        *(
            (name, query)
            for name in ("T-shirt", "T shirt", "Tshirt", "t\u2011shirts")
            for query in ("t-shirt", "tshirt")
        ),
        *((name, query) for name in ("T-shirt", "T shirt", "Tshirt", "tshirts") for query in ("T SHIRT", "tshirts")),
        *(("Out-of-band set", query) for query in ("outofband", "out ofband", "set out-of-band", "outof band sets")),
    ],
)
def test_accents_plurals_and_hyphens_do_not_matter(name: str, query: str) -> None:
    found = product("found", name)
    assert Catalog([MUG, found, TEA]).search(query) == [found]


@pytest.mark.parametrize(
    ("singular", "plural"),
    [
        *(("mug", "mugs"), ("glass", "glasses"), ("watch", "watches"), ("box", "boxes"), ("atlas", "atlases")),
        *(("berry", "berries"), ("toy", "toys"), ("beanie", "beanies"), ("knife", "knives"), ("scarf", "scarves")),
        *(("shoe", "shoes"), ("bus", "buses"), ("lens", "lenses"), ("glove", "gloves"), ("tomato", "tomatoes")),
    ],
)
def test_a_plural_finds_the_singular_and_the_singular_the_plural(singular: str, plural: str) -> None:
    one, many = product("one", f"One {singular}"), product("many", f"Two {plural}")
    assert Catalog([many, one]).search(singular) == [one, many]
    assert Catalog([one, many]).search(plural) == [many, one]


def test_a_word_outranks_a_variant_and_a_variant_outranks_a_prefix_within_a_field() -> None:
    exact, accented, longer = product("e", "Cafe"), product("a", "Café"), product("l", "Cafeteria")
    described = product("d", "Chair", "For a cafe.")
    assert Catalog([described, longer, accented, exact]).search("cafe") == [exact, accented, longer, described]


def test_words_that_are_written_as_one_rank_like_each_of_them() -> None:
    split, one = product("split", "Shirt", "With a T on it."), product("one", "Tshirt")
    assert Catalog([split, one]).search("t-shirt") == [one, split]


def test_a_query_of_more_than_256_characters_is_rejected() -> None:
    assert CATALOG.search("mug" + " " * 253) == [MUG, KETTLE]
    with rejecting("query"):
        CATALOG.search("x" * 257)


@given(st.text(alphabet="abz09ÀéñüßΣÅжあ -_%.'", max_size=60))
def test_a_product_is_found_by_its_own_name_in_any_case_and_normalization(name: str) -> None:
    named = product("named", name)
    found = Catalog([MUG, named]).search(unicodedata.normalize("NFD", name).upper())
    assert named in found or not any(unicodedata.category(c)[0] in "LN" for c in name)
