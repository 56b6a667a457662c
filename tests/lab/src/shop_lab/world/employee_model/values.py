"""Expected responses; values that the service chooses are unknown until a response contains them."""

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Self

_ID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_MOMENT = "%Y-%m-%dT%H:%M:%S.%fZ"
_REQUEST_DURATION = timedelta(seconds=1)
COLORS = {"#818cf8", "#f59e0b", "#34d399", "#f472b6", "#fb923c", "#60a5fa", "#a78bfa"}


class Anything:
    """Matches every value."""


class Chosen:
    """A value that the service chooses: the first response decides it, and all others must agree."""

    def __init__(self, is_valid: Callable[[Any], bool]) -> None:
        self._is_valid = is_valid
        self.value: Any = None

    def bind(self, actual: Any) -> None:
        assert self._is_valid(actual), f"{actual!r} is not valid"
        self.value = actual


@dataclass
class Derived:
    """A value that follows from a chosen one, whose own value is known by then."""

    source: Chosen
    derive: Callable[[Any], Any]


def is_id(text: Any) -> bool:
    return isinstance(text, str) and _ID.fullmatch(text) is not None


def new_id() -> Chosen:
    return Chosen(is_id)


def new_text() -> Chosen:
    return Chosen(lambda value: isinstance(value, str) and value != "")


def new_color() -> Chosen:
    return Chosen(lambda value: value in COLORS)


def moment(begin: datetime) -> Chosen:
    """Return a timestamp of a request that begins then, or of that time later."""
    return Chosen(lambda value: begin <= parse_moment(value) < begin + _REQUEST_DURATION)


def parse_moment(text: str) -> datetime:
    return datetime.strptime(text, _MOMENT).replace(tzinfo=UTC)


def recorded(value: Any) -> Any:
    """Return a timestamp as activities record it."""
    return Derived(value, lambda text: str(parse_moment(text))) if isinstance(value, Chosen) else value


def check(expected: Any, actual: Any, path: str = "body") -> None:
    """Compare a response with what is expected, and bind the values that the service has chosen."""
    if isinstance(expected, Anything):
        return
    if isinstance(expected, Chosen) and expected.value is None:
        expected.bind(actual)
    elif isinstance(expected, Chosen | Derived):
        known = expected.value if isinstance(expected, Chosen) else expected.derive(expected.source.value)
        assert actual == known, f"{path}: {actual!r}, not {known!r}"
    elif isinstance(expected, dict):
        assert isinstance(actual, dict), f"{path}: {actual!r}"
        assert actual.keys() == expected.keys(), f"{path}: {sorted(actual)}, not {sorted(expected)}"
        for name, value in expected.items():
            check(value, actual[name], f"{path}.{name}")
    elif isinstance(expected, list):
        assert isinstance(actual, list), f"{path}: {actual!r}"
        assert len(actual) == len(expected), f"{path}: {len(actual)} items, not {len(expected)}: {actual}"
        for number, value in enumerate(expected):
            check(value, actual[number], f"{path}[{number}]")
    else:
        same = actual == expected and isinstance(actual, bool) == isinstance(expected, bool)
        assert same, f"{path}: {actual!r}, not {expected!r}"


class Refused(Exception):
    """The request gets an error."""

    def __init__(self, status: int, text: Any) -> None:
        super().__init__(status, text)
        self.reply = Reply(status, {"error": text})


@dataclass
class Reply:
    """What a response must be.

    Attributes:
        status: the status.
        body: the parsed body, with chosen values.
        tagged: whether it has an entity tag.
        location: the parts of the path of what was created.
        replayed: whether it is that of an earlier request with the same key.
        session: the token of the session that a login begins.
        remember: where to store the response for repetitions.
    """

    status: int
    body: Any
    tagged: bool = False
    location: tuple[Any, ...] = ()
    replayed: bool = False
    session: Chosen | None = None
    remember: tuple[Any, ...] | None = None


@dataclass
class Call:
    """A request; `args` are the ids in its path."""

    token: str | None = None
    args: tuple[str, ...] = ()
    body: Any = None
    query: dict[str, Any] = field(default_factory=dict)
    key: str | None = None
    if_match: str | None = None
    if_none_match: str | None = None
    valid: bool = True


class Reversed:
    """Sorts in the opposite direction."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def __lt__(self, other: Self) -> bool:
        return bool(other.value < self.value)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Reversed) and self.value == other.value

    def __hash__(self) -> int:
        return hash(self.value)
