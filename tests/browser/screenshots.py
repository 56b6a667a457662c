"""`python tests/browser/screenshots.py` makes the pictures in `.github/screenshots`, of a shop that it starts."""

import asyncio
import tempfile
from pathlib import Path

from playwright.async_api import Browser, expect

from shop_cli.local.run_file import Run
from shop_kit.browser import open_tab, running_browser
from shop_kit.card_leaks import random_card
from shop_kit.running_shop import shop_up

PICTURES = Path(__file__).parents[2] / ".github/screenshots"
WINDOW = {"width": 1100, "height": 1000}


async def picture_order(browser: Browser, run: Run) -> None:
    async with open_tab(browser, f"http://{run.addresses['storefront']}", viewport=WINDOW) as tab:
        for product in ("copper-kettle", "linen-shirt", "stoneware-mug"):
            await tab.add_to_cart(product)
        await tab.fill_checkout_form(random_card("4"))
        await tab.place_order()
        await expect(tab.page.locator(".waterfall")).to_contain_text("payment")
        await tab.page.screenshot(path=PICTURES / "order.png")


async def picture_control_room(browser: Browser, run: Run) -> None:
    """Take a picture of the control room after a minute with customers, whose figures then fill its lines."""
    async with open_tab(browser, run.control_room, viewport={**WINDOW, "height": 1500}) as tab:
        await tab.page.goto(f"/?token={run.token}")
        await tab.page.get_by_role("button", name="Start", exact=True).click()
        await asyncio.sleep(60)
        await tab.page.screenshot(path=PICTURES / "control-room.png")


async def picture_mystery(browser: Browser, run: Run) -> None:
    """Take a picture of a mystery after a minute, and of its end."""
    async with open_tab(browser, run.control_room, viewport={**WINDOW, "height": 1500}) as tab:
        await tab.page.goto(f"/?token={run.token}")
        await tab.page.get_by_role("button", name="Break something").click()
        await asyncio.sleep(60)
        await tab.page.screenshot(path=PICTURES / "mystery.png")
        panel = tab.page.get_by_label("mystery")
        await panel.get_by_label("Service at fault").fill("payment")
        await panel.get_by_role("button", name="Answer").click()
        await expect(panel).to_contain_text("payment, after")
        await panel.get_by_role("button", name="Reveal").click()
        await expect(panel).to_contain_text("Customers see it by")
        await panel.screenshot(path=PICTURES / "mystery-revealed.png")


async def main() -> None:
    PICTURES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        async with shop_up(Path(folder), "--lab") as run, running_browser() as browser:
            await picture_order(browser, run)
            await picture_control_room(browser, run)
            await picture_mystery(browser, run)


if __name__ == "__main__":
    asyncio.run(main())
