"""Checks of peers' responses, apart from the client because a command of the CLI needs neither them nor a logger."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeAlias

import structlog

from chassis.errors import PeerBroken

log = structlog.get_logger()

Check: TypeAlias = Callable[[Any, Any, Mapping[str, str]], Iterable[tuple[str, bool]]]
"""Examines a request's response and trailing metadata: yields parts of them, and whether each is valid."""


def required(method: str, check: Check) -> Callable[[Any, Any, Mapping[str, str]], None]:
    """Return a function that raises PeerBroken for the first invalid part of the method's response."""

    def require(request: Any, response: Any, trailers: Mapping[str, str]) -> None:
        for part, valid in check(request, response, trailers):
            if not valid:
                # Never the value: it may be anything, such as the number of a card.
                log.error("peer broken", method=method, part=part)
                raise PeerBroken(f"{method} returned an invalid {part}")

    return require
