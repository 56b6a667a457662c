"""The same requests to APIs on two databases, which must send the same bytes.

Everything random is drawn from a seed that depends only on the number of the request: ids, tokens, colors. So responses
contain no differences to allow for, not even in cursors and entity tags.
"""

import asyncio
import base64
import csv
import io
import random
import secrets
import uuid
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import httpx2
import pytest

from employee_api.models import User
from shop_lab.world.employee_api import Api, Clock, api_starter

_COMPARED_HEADERS = ("content-type", "etag", "location", "set-cookie", "idempotency-replayed", "www-authenticate")
_MAX_ID = 2**128 - 1
_IDS_PER_REQUEST = 2**20


class SeededRandomness(random.Random):
    """Replaces the sources of randomness. Ids fall, so that the newest row has the smallest one."""

    def __init__(self) -> None:
        super().__init__(0)
        self._next_id = _MAX_ID

    def patch(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(uuid, "uuid4", self._uuid)
        monkeypatch.setattr(secrets, "token_urlsafe", self._token)
        monkeypatch.setattr(random, "SystemRandom", lambda: self)

    def restart(self, step: int) -> None:
        self.seed(step)
        self._next_id = _MAX_ID - step * _IDS_PER_REQUEST

    def _uuid(self) -> uuid.UUID:
        self._next_id -= 1
        return uuid.UUID(int=self._next_id)

    def _token(self, size: int) -> str:
        return base64.urlsafe_b64encode(self.randbytes(size)).rstrip(b"=").decode()


@dataclass(frozen=True)
class Twins:
    """APIs on two databases, each in several modes.

    Attributes:
        runner: runs their event loop.
        randomness: is restarted for each request.
        clock: of both.
        apis: one for each database, by the name of the mode.
    """

    runner: asyncio.Runner
    randomness: SeededRandomness
    clock: Clock
    apis: Mapping[str, Sequence[Api]]

    def empty(self) -> None:
        """Delete all rows."""
        for api in next(iter(self.apis.values())):
            self.runner.run(_empty(api))

    def send(self, mode: str, step: int, now: datetime, method: str, path: str, **request: Any) -> httpx2.Response:
        """Send a request to both, compare the responses, and return one of them."""
        first, second = (self._send(api, step, now, method, path, **request) for api in self.apis[mode])
        both = [(response.status_code, _content(response)) for response in (first, second)]
        assert both[0] == both[1], f"{both[0]} on the first database, {both[1]} on the second"
        for name in _COMPARED_HEADERS:
            assert first.headers.get_list(name) == second.headers.get_list(name), name
        return first

    def _send(self, api: Api, step: int, now: datetime, method: str, path: str, **request: Any) -> httpx2.Response:
        self.randomness.restart(step)
        self.clock.now = now
        response = self.runner.run(api.client.request(method, path, **request))
        api.client.cookies.clear()
        return response


def _content(response: httpx2.Response) -> Any:
    # PostgreSQL writes empty text as "" to distinguish it from a missing value; CSV readers don't.
    is_csv = response.headers.get("content-type", "").startswith("text/csv")
    return list(csv.reader(io.StringIO(response.text, newline=""))) if is_csv else response.text


async def _empty(api: Api) -> None:
    async with api.engine.begin() as connection:
        for table in reversed(User.metadata.sorted_tables):
            await connection.execute(table.delete())


async def start(
    stack: AsyncExitStack, urls: Sequence[str], clock: Clock, modes: Mapping[str, Mapping[str, Any]]
) -> dict[str, list[Api]]:
    """Start an API on each database in each mode, until the stack is closed."""
    apis: dict[str, list[Api]] = {}
    for mode, settings in modes.items():
        apis[mode] = [await stack.enter_async_context(api_starter(url, clock)(**settings)) for url in urls]
    return apis
