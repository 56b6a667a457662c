"""Folders of tests that share what takes long to start: a worker, and the event loop of its session."""

import pytest
import pytest_asyncio
from typing_extensions import override
from xdist.scheduler import LoadFileScheduling

SHARED_FOLDERS = "shared_folders"


def shared_folder(node_id: str, config: pytest.Config) -> str:
    """Return the folder of a test's file if its tests share fixtures of their session, else an empty text."""
    folder = node_id.partition("::")[0].rpartition("/")[0]
    return folder if folder in config.getini(SHARED_FOLDERS) else ""


def share(items: list[pytest.Item], config: pytest.Config) -> None:
    """Run the tests of shared folders first, because they take longest, and on the loop of their session's fixtures."""
    items.sort(key=lambda item: not shared_folder(item.nodeid, config))
    for item in items:
        if shared_folder(item.nodeid, config) and pytest_asyncio.is_async_test(item):
            item.add_marker(pytest.mark.asyncio(loop_scope="session"), append=False)


class FilesAndFolders(LoadFileScheduling):  # type: ignore[misc]  # xdist has no types
    """Sends the tests of a file to one worker, and those of a shared folder, too.

    `xdist_group` would do, but has no effect with pytest 9.2.
    """

    @override
    def _split_scope(self, nodeid: str) -> str:
        return shared_folder(nodeid, self.config) or str(super()._split_scope(nodeid))
