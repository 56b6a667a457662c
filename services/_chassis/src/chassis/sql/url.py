"""Database URLs: `sqlite:///relative.db`, `sqlite:////absolute.db`, or any `postgresql://` URL that libpq accepts."""

from pathlib import Path


class DatabaseUnusable(OSError):
    """The process can't use its database at startup. The message is one line and never contains the password."""

    def __init__(self, reason: object) -> None:
        super().__init__(f"DATABASE_URL: {' '.join(str(reason).split())}")


def sqlite_path(url: str) -> Path | None:
    """Return the file path in a `sqlite:///` URL, or None for any other URL."""
    name = url.removeprefix("sqlite:///")
    return Path(name) if name != url and name else None


def libpq_url(url: str) -> str:
    """Remove SQLAlchemy's driver name from a PostgreSQL URL. Raise ValueError for other URLs, without quoting them."""
    scheme, separator, rest = url.partition("://")
    if not separator or scheme.partition("+")[0] not in {"postgresql", "postgres"}:
        raise ValueError("a database URL begins with sqlite:/// or postgresql://")
    return f"postgresql://{rest}"
