"""Builds PostgreSQL URLs for SQLAlchemy. Not in `engine`, which needs greenlet, a package that most images lack."""

from psycopg.conninfo import conninfo_to_dict
from sqlalchemy.engine import URL

from chassis.sql.url import libpq_url

# Don't prepare statements: a pooler may run the next transaction in another session, where they don't exist.
UNPREPARED = {"prepare_threshold": None}


def sqlalchemy_url(url: str, **defaults: str) -> URL:
    parts = defaults | {name: str(value) for name, value in conninfo_to_dict(libpq_url(url)).items()}
    user, password, name = (parts.pop(key, None) for key in ("user", "password", "dbname"))
    # SQLAlchemy accepts several hosts only in the URL's query string.
    return URL.create("postgresql+psycopg", user, password, database=name, query=parts)
