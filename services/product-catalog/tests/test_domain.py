import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chassis.errors import InvalidArgument
from chassis.values.money import Money
from product_catalog_service.domain import Catalog, Product, ProductNotFound


def product(product_id: str, name: str, description: str = "Good.", *categories: str) -> Product:
    return Product(product_id, name, description, f"/{product_id}.jpg", Money.of("USD", 5), categories or ("things",))


MUG = product("mug", "Stoneware mug", "Holds tea; 100% clay.", "kitchen")
KETTLE = product("kettle", "Copper kettle", "For tea, not for a mug.", "kitchen")
TEA = product("tea", "Green tea", "Leaves from the hills.", "pantry")
TIN = product("tin", "Round tin", "Keeps leaves dry.", "tea", "pantry")
CAFE = product("cafe", "Café chair", "A STRASSE favourite, snake_case free.", "furniture")

CATALOG = Catalog([MUG, KETTLE, TIN, TEA, CAFE])


@pytest.mark.parametrize("product_id", ["spoon", "MUG", "mug ", "' OR 1=1 --"])
def test_an_unknown_id_is_not_found(product_id: str) -> None:
    with pytest.raises(ProductNotFound):
        CATALOG.find(product_id)


@pytest.mark.parametrize("product_id", ["", "x" * 65])
def test_a_malformed_id_is_rejected(product_id: str) -> None:
    with pytest.raises(InvalidArgument) as refused:
        CATALOG.find(product_id)
    assert refused.value.violations[0].field == "id"


def test_a_catalog_with_a_duplicate_id_is_rejected() -> None:
    with pytest.raises(ValueError, match="two products have the id mug"):
        Catalog([MUG, KETTLE, MUG])


def test_an_empty_catalog_is_rejected() -> None:
    with pytest.raises(ValueError, match="at least one product"):
        Catalog([])


def test_the_name_outranks_a_category_and_a_category_outranks_the_description() -> None:
    assert CATALOG.search("tea") == [TEA, TIN, MUG, KETTLE]


def test_products_of_equal_rank_are_in_the_order_of_the_catalog() -> None:
    assert Catalog([KETTLE, MUG]).search("kitchen") == [KETTLE, MUG]
    assert Catalog([MUG, KETTLE]).search("kitchen") == [MUG, KETTLE]


def test_every_word_of_the_query_must_match() -> None:
    assert CATALOG.search("leaves pantry") == [TIN, TEA]
    assert CATALOG.search("leaves kitchen") == []


def test_order_and_repetition_of_query_words_do_not_matter() -> None:
    assert CATALOG.search("mug tea") == CATALOG.search("tea, mug tea!") == [MUG, KETTLE]


def test_a_prefix_of_a_word_matches() -> None:
    assert CATALOG.search("stonew") == [MUG]


def test_the_middle_of_a_word_does_not_match() -> None:
    assert CATALOG.search("oneware") == []


def test_a_whole_word_outranks_a_prefix() -> None:
    teapot = product("teapot", "Teapot")
    assert Catalog([teapot, TEA]).search("tea") == [TEA, teapot]


@pytest.mark.parametrize("query", ["CAFÉ", "cafe\u0301", "caf\u00e9", "straße", "Strasse"])
def test_case_and_unicode_normalization_do_not_matter(query: str) -> None:
    assert CATALOG.search(query) == [CAFE]


@pytest.mark.parametrize("query", ["", " ", "%", "_", "%%", ".*", "\\", "(", "[", "'", "\n\t"])
def test_a_query_without_a_word_finds_nothing(query: str) -> None:
    assert CATALOG.search(query) == []


@pytest.mark.parametrize("query", ["m.g", "m_g", "%ug", "(mug|tin)", "mug*tin", "%tin OR mug"])
def test_wildcards_and_patterns_have_no_meaning(query: str) -> None:
    assert CATALOG.search(query) == []


def test_punctuation_separates_words() -> None:
    assert CATALOG.search("100%") == [MUG]
    assert CATALOG.search("snake-case") == [CAFE]


def test_a_query_of_more_than_256_characters_is_rejected() -> None:
    assert CATALOG.search("mug" + " " * 253) == [MUG, KETTLE]
    with pytest.raises(InvalidArgument) as refused:
        CATALOG.search("x" * 257)
    assert refused.value.violations[0].field == "query"


@given(st.text(alphabet="abz09ÀéñüßΣÅжあ -_%.'", max_size=60))
def test_a_product_is_found_by_its_own_name_in_any_case_and_normalization(name: str) -> None:
    named = product("named", name)
    found = Catalog([MUG, named]).search(unicodedata.normalize("NFD", name).upper())
    assert named in found or not any(unicodedata.category(c)[0] in "LN" for c in name)
