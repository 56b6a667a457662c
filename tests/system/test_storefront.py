"""An order through the pages of the storefront, with all services as processes."""

from shop_cli.local.processes import Process
from shop_kit.storefront import Visitor
from shop_kit.waiting import wait_until


async def page_with(visitor: Visitor, path: str, text: str) -> str:
    """Wait until a page shows a text, and return it."""

    async def shown() -> str:
        page = await visitor.page(path)
        return page if text in page else ""

    return await wait_until(shown)


async def test_a_declined_card_is_refused_on_the_form_and_an_order_becomes_complete(storefront: Process) -> None:
    async with Visitor(base_url=f"http://{storefront.address}", timeout=300) as visitor:
        declined = await visitor.order(credit_card_number="378282246310005")
        assert declined.status_code == 402
        assert "You were not charged." in declined.text
        path = (await visitor.order()).headers["location"].partition("?")[0]
        page = await page_with(visitor, path, '<h2 id="state">Complete</h2>')
        assert "Cast-iron pan" in page
        assert "1 Harbour Street" in page
        await page_with(visitor, "/cart", "Nothing in it yet.")
        await page_with(visitor, f"{path}/email", "Thank you")
        assert path in await visitor.page("/orders")
