"""An order through the pages of the storefront, with all services as processes."""

from collections.abc import AsyncIterator

import pytest_asyncio

from shop_cli.local.processes import Process
from shop_kit.card_leaks import leaked_cards, random_card
from shop_kit.waiting import wait_until
from shop_lab.world.storefront import Visitor


@pytest_asyncio.fixture(loop_scope="session")
async def visitor(storefront: Process) -> AsyncIterator[Visitor]:
    # The default deadline of the client is shorter than that of an order on a busy machine.
    async with Visitor(base_url=f"http://{storefront.address}", timeout=30) as visitor:
        yield visitor


async def ordered(visitor: Visitor) -> str:
    """Order one pan and return the path of the order's page."""
    return (await visitor.order()).headers["location"].partition("?")[0]


async def test_an_order_becomes_complete(visitor: Visitor) -> None:
    path = await ordered(visitor)

    async def is_complete() -> bool:
        return '<h2 id="state">Complete</h2>' in await visitor.page(path)

    await wait_until(is_complete)


async def test_the_page_of_an_order_shows_what_was_bought(visitor: Visitor) -> None:
    page = await visitor.page(await ordered(visitor))
    assert "Cast-iron pan" in page
    assert "1 Harbour Street" in page


async def test_an_order_leaves_the_cart_empty(visitor: Visitor) -> None:
    await ordered(visitor)

    async def is_empty() -> bool:
        return "Nothing in it yet." in await visitor.page("/cart")

    await wait_until(is_empty)


async def test_a_repeated_form_leads_to_the_same_order(visitor: Visitor) -> None:
    await visitor.add_to_cart()
    form = await visitor.checkout_form()
    first, again = [await visitor.post("/orders", data=form) for _ in range(2)]
    assert again.headers["location"] == f"{first.headers['location']}?repeated=1"


async def test_the_order_is_among_those_of_the_session(visitor: Visitor) -> None:
    assert await ordered(visitor) in await visitor.page("/orders")


async def test_the_e_mail_of_the_order_is_shown(visitor: Visitor) -> None:
    path = await ordered(visitor)

    async def is_shown() -> bool:
        return "Thank you" in await visitor.page(f"{path}/email")

    await wait_until(is_shown)


async def test_a_line_of_the_cart_can_be_removed(visitor: Visitor) -> None:
    await visitor.add_to_cart("wool-blanket")
    await visitor.post("/cart/quantity", data={"product_id": "wool-blanket", "quantity": "0"})
    assert "Nothing in it yet." in await visitor.page("/cart")


async def test_a_declined_card_is_refused_on_the_form(visitor: Visitor) -> None:
    response = await visitor.order(credit_card_number="378282246310005")
    assert response.status_code == 402
    assert "You were not charged." in response.text


async def test_no_card_data_are_in_the_log(visitor: Visitor, storefront: Process) -> None:
    card = random_card("4")
    await visitor.order(credit_card_number=card)
    await visitor.order(credit_card_number=card, credit_card_cvv="x")
    assert leaked_cards(storefront.log_path.read_bytes(), [card]) == set()


async def test_requests_are_logged_without_their_queries(visitor: Visitor, storefront: Process) -> None:
    await visitor.page("/search?q=a-secret-wish")
    # The line is written after the response.
    await wait_until(lambda: '"path":"/search"' in storefront.log_path.read_text())
    assert "a-secret-wish" not in storefront.log_path.read_text()
