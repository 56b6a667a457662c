import pytest

from load_generator.pages import Page, name_of

HTML = """
<a class="card" href="/products/copper-kettle">Kettle</a> <a href="/products/copper-kettle"><img></a>
<a href="/products/mug?from=home&amp;n=1">Mug</a> <a href="/cart">Cart</a>
<form method="post" action="/currency"><input type="hidden" name="return_to" value="/?a=1&amp;b=2"></form>
<form class="buy" method="post" action="/cart/items">
  <input type="hidden" name="key" value="k-1">
  <input name="product_id" value="mug" type="hidden"><input type="number" name="quantity" value="1">
</form>
"""
PAGE = Page.read("GET", "/", "/", HTML)


def test_links_are_found_once_each_and_in_their_order() -> None:
    assert PAGE.links("/products/") == ["/products/copper-kettle", "/products/mug?from=home&n=1"]


def test_a_form_is_found_by_its_action_with_its_hidden_fields() -> None:
    assert PAGE.forms["/cart/items"] == {"key": "k-1", "product_id": "mug"}


def test_a_page_without_the_form_has_none() -> None:
    assert "/orders" not in PAGE.forms


@pytest.mark.parametrize(
    ("path", "order_id"), [("/orders/abc?repeat=1", "abc"), ("/orders", None), ("/orders/abc/email", None), ("/", None)]
)
def test_the_page_of_an_order_is_recognized_by_its_path(path: str, order_id: str | None) -> None:
    assert Page.read("GET", "", path, "").order_id() == order_id


def test_orders_that_a_page_links_to_are_counted_once() -> None:
    text = '<a href="/orders/one">1</a><a href="/orders/one/email">mail</a><a href="/orders/two"></a><a href="/orders">'
    assert Page.read("GET", "/orders", "/orders", text).order_ids() == {"one", "two"}


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("/", "/"),
        ("/search?q=mug", "/search"),
        ("/products/mug?from=home", "/products/{id}"),
        ("/categories/kitchen", "/categories/{name}"),
        ("/orders/abc", "/orders/{id}"),
        ("/orders", "/orders"),
        ("/cart/items", "/cart/items"),
    ],
)
def test_pages_of_one_kind_have_one_name(path: str, name: str) -> None:
    assert name_of(path) == name
