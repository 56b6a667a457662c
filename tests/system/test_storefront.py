"""An order through the pages of the storefront, with all services as processes."""

from collections.abc import AsyncIterator

import pytest_asyncio

from shop_cli.local.processes import Process
from shop_kit.card_leaks import leaked_cards, random_card
from shop_kit.storefront import Visitor
from shop_kit.waiting import wait_until


@pytest_asyncio.fixture(loop_scope="session")
async def visitor(storefront: Process) -> AsyncIterator[Visitor]:
    # The default deadline of the client is shorter than that of an order on a busy machine.
    async with Visitor(base_url=f"http://{storefront.address}", timeout=30) as visitor:
        yield visitor


async def page_with(visitor: Visitor, path: str, text: str) -> str:
    """Wait until a page shows a text, and return it."""

    async def shown() -> str:
        page = await visitor.page(path)
        return page if text in page else ""

    return await wait_until(shown)


async def test_an_order_becomes_complete_and_the_pages_show_it(visitor: Visitor) -> None:
    path = (await visitor.order()).headers["location"].partition("?")[0]
    page = await page_with(visitor, path, '<h2 id="state">Complete</h2>')
    assert "Cast-iron pan" in page
    assert "1 Harbour Street" in page
    await page_with(visitor, "/cart", "Nothing in it yet.")
    await page_with(visitor, f"{path}/email", "Thank you")
    assert path in await visitor.page("/orders")


async def test_a_declined_card_is_refused_on_the_form(visitor: Visitor) -> None:
    response = await visitor.order(credit_card_number="378282246310005")
    assert response.status_code == 402
    assert "You were not charged." in response.text


async def test_requests_are_logged_without_card_data_and_queries(visitor: Visitor, storefront: Process) -> None:
    card = random_card("4")
    await visitor.order(credit_card_number=card)
    await visitor.order(credit_card_number=card, credit_card_cvv="x")
    await visitor.page("/search?q=a-secret-wish")
    # The line is written after the response.
    await wait_until(lambda: '"path":"/search"' in storefront.log_path.read_text())
    assert "a-secret-wish" not in storefront.log_path.read_text()
    assert leaked_cards(storefront.log_path.read_bytes(), [card]) == set()
