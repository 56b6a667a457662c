"""One shop with its control room and one browser for all tests of pages, each of which has tabs of its own."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack

import pytest
import pytest_asyncio
from playwright.async_api import Browser

from shop_cli.local.run_file import Run
from shop_kit.browser import Tab, open_tab, running_browser
from shop_kit.running_shop import shop_up

OpenTab = Callable[..., Awaitable[Tab]]


@pytest_asyncio.fixture(scope="package", loop_scope="session")
async def browser() -> AsyncIterator[Browser]:
    async with running_browser() as browser:
        yield browser


@pytest_asyncio.fixture(scope="package", loop_scope="session")
async def run(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Run]:
    async with shop_up(tmp_path_factory.mktemp("shop"), "--tls", "--lab") as found:
        yield found


@pytest.fixture(scope="package")
def origin(run: Run) -> str:
    return f"http://{run.addresses['storefront']}"


@pytest_asyncio.fixture(loop_scope="session")
async def new_tab(browser: Browser, origin: str) -> AsyncIterator[OpenTab]:
    """Open tabs of visitors who were not here before. After the test, fail if anything went wrong in one of them."""
    tabs: list[Tab] = []
    async with AsyncExitStack() as stack:

        async def opened(**options: object) -> Tab:
            tabs.append(await stack.enter_async_context(open_tab(browser, origin, **options)))
            return tabs[-1]

        yield opened
    assert [problem for tab in tabs for problem in tab.problems] == []


@pytest_asyncio.fixture(loop_scope="session")
async def tab(new_tab: OpenTab) -> Tab:
    return await new_tab()
