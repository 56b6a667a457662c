"""`python tests/browser/versions.py ORIGIN VERSION...` pictures what versions of the recommendation show, side by side.

Routes of the shop at ORIGIN lead calls with the header `shop-version` to a version. Fails if a page names another one.
"""

import asyncio
import base64
import sys

from playwright.async_api import Browser, ViewportSize, expect

from shop_kit.browser import SCREENSHOTS, open_tab, running_browser

PAGE = "/products/copper-kettle"
WIDTH, HEIGHT = 640, 1000
SECONDS = 300


async def picture(browser: Browser, origin: str, version: str) -> bytes:
    """Return a picture of the recommendations of a product. Raise TimeoutError if no page shows them."""
    window = ViewportSize(width=WIDTH, height=HEIGHT)
    async with open_tab(browser, origin, viewport=window, extra_http_headers={"shop-version": version}) as tab:
        section = tab.page.locator("section", has=tab.page.locator("#recommended"))
        async with asyncio.timeout(SECONDS):
            await tab.page.goto(PAGE)
            while not await section.count():  # a page leaves them out when they are slow
                await tab.page.reload()
        await expect(section.locator("h2")).to_have_text(f"Goes with this · {version}")
        await section.locator("img").last.scroll_into_view_if_needed()
        return await section.screenshot()


async def main(origin: str, *versions: str) -> None:
    """Write `versions.png` to the folder of screenshots."""
    async with running_browser() as browser:
        pictures = [await picture(browser, origin, version) for version in versions]
        page = await browser.new_page(viewport=ViewportSize(width=len(versions) * (WIDTH + 24), height=HEIGHT))
        images = "".join(f'<img src="data:image/png;base64,{base64.b64encode(one).decode()}">' for one in pictures)
        await page.set_content(f'<body style="display: flex; align-items: start; gap: 24px; margin: 24px">{images}')
        SCREENSHOTS.mkdir(parents=True, exist_ok=True)
        await page.screenshot(path=SCREENSHOTS / "versions.png", full_page=True)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
