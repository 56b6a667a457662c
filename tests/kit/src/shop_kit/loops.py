"""Event loops that tests share with the fixtures of their session."""

from collections.abc import Iterable
from pathlib import Path

import pytest
import pytest_asyncio


def share_loop(items: Iterable[pytest.Item], folder: Path) -> None:
    """Run the async tests in a folder on the session's loop, on which its fixtures have started processes."""
    for item in items:
        if item.path.is_relative_to(folder) and pytest_asyncio.is_async_test(item):
            item.add_marker(pytest.mark.asyncio(loop_scope="session"), append=False)
