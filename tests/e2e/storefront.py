"""A visitor of the storefront: `python storefront.py URL COOKIES fill|cart|order`, with the test kit installed.

`fill` puts a product into the cart, `cart` checks that it is there, and `order` orders it, sends the form again and
waits until the one order is done. COOKIES is the file in which the session is stored between two runs. Ends with an
error that says why if a page is not as it should be.
"""

import asyncio
import contextlib
import re
import secrets
import sys
from http.cookiejar import DefaultCookiePolicy, LWPCookieJar
from pathlib import Path

from shop_kit.storefront import Visitor
from shop_kit.waiting import wait_until

TIMEOUT_SECONDS = 30
PRODUCT = "copper-kettle"


async def fill(visitor: Visitor) -> None:
    """Put a product into the cart."""
    assert (await visitor.add_to_cart(PRODUCT)).is_redirect


async def check_cart(visitor: Visitor) -> None:
    """Require that the product is in the session's cart: a link to it may be a recommendation."""
    lines = re.findall(r'action="/cart/quantity".*?</form>', await visitor.page("/cart"), re.DOTALL)
    assert f'value="{PRODUCT}"' in "".join(lines), f"{PRODUCT} is not in the cart"


async def order(visitor: Visitor) -> None:
    """Order the cart and send the form again: both lead to the same order, which is done in the end."""
    # A mailbox gets a limited number of confirmations.
    form = await visitor.checkout_form(email=f"{secrets.token_hex(16)}@example.com")
    responses = [await visitor.post("/orders", data=form) for _ in range(2)]
    (path,) = {response.headers["location"].partition("?")[0] for response in responses}

    async def is_done() -> bool:
        return "<code>DONE</code>" in await visitor.page(path)

    await wait_until(is_done, TIMEOUT_SECONDS)


async def main(url: str, cookies: Path, action: str) -> None:
    # A forwarded port is http, whatever the public URL is.
    jar = LWPCookieJar(str(cookies), policy=DefaultCookiePolicy(secure_protocols=("https", "http")))
    with contextlib.suppress(FileNotFoundError):
        jar.load(ignore_discard=True)
    async with Visitor(base_url=url, cookies=jar, timeout=TIMEOUT_SECONDS) as visitor:
        await {"fill": fill, "cart": check_cart, "order": order}[action](visitor)
    jar.save(ignore_discard=True)
    print(f"{action}: as it should be")  # noqa: T201


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], Path(sys.argv[2]), sys.argv[3]))
