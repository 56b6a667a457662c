"""What the employee API decides about its values, as pure functions: no database, no HTTP."""

import random
import re
import unicodedata
import uuid
from datetime import UTC, datetime

DEFAULT_ROLE = "employee"
LEADERS = frozenset({"ceo", "cto", "manager"})
COLORS = ("#818cf8", "#f59e0b", "#34d399", "#f472b6", "#fb923c", "#60a5fa", "#a78bfa")

AVATAR_LENGTH = 2
_MONTH = re.compile(r"([0-9]{4})-(0[1-9]|1[0-2])")
_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE)

# What spreadsheets take for the start of a formula; the last four are the first four in full width.
FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r", "\uff1d", "\uff0b", "\uff0d", "\uff20")


def avatar(name: str) -> str:
    """Initials: the first character of each space-separated word, two at most, then in upper case."""
    return "".join(word[0] for word in name.split(" ") if word)[:AVATAR_LENGTH].upper()


def pick_color(chance: random.Random) -> str:
    """One of COLORS, at random."""
    return chance.choice(COLORS)


def email_key(email: str) -> str:
    """What makes two spellings of an address one user: neither case nor Unicode composition tells them apart."""
    return unicodedata.normalize("NFC", unicodedata.normalize("NFC", email).casefold())


def parse_id(text: str) -> uuid.UUID | None:
    """Read an id in its canonical form; None for anything else."""
    return uuid.UUID(text) if _UUID.fullmatch(text) else None


def month_range(month: str) -> tuple[datetime, datetime]:
    """The first moment of a month `YYYY-MM` in UTC, and the last one.

    Raises ValueError for another form; `0000` is no year.
    """
    match = _MONTH.fullmatch(month)
    if match is None:
        raise ValueError("month must be YYYY-MM")
    year, number = int(match[1]), int(match[2])
    first = datetime(year, number, 1, tzinfo=UTC)
    # The month after December 9999 can't be expressed, so a range ends with its last microsecond.
    following = datetime(year + number // 12, number % 12 + 1, 1, tzinfo=UTC) if (year, number) != (9999, 12) else None
    return first, datetime.max.replace(tzinfo=UTC) if following is None else following - datetime.resolution
