"""PostgreSQL URLs for SQLAlchemy. Not part of `engine`, which needs greenlet, because most images lack greenlet."""

from psycopg.conninfo import conninfo_to_dict
from sqlalchemy.engine import URL, make_url

from chassis.sql.url import libpq_url

# Don't prepare statements: a pooler may run the next transaction in another session, which lacks them.
UNPREPARED = {"prepare_threshold": None}
_DRIVER = "postgresql+psycopg"


def sqlalchemy_url(url: str) -> URL:
    libpq = libpq_url(url)
    parts = {name: str(value) for name, value in conninfo_to_dict(libpq).items()}
    if "," not in parts.get("host", ""):
        return make_url(libpq).set(drivername=_DRIVER)
    # SQLAlchemy accepts several hosts only in the URL's query.
    user, password, name = (parts.pop(key, None) for key in ("user", "password", "dbname"))
    return URL.create(_DRIVER, user, password, database=name, query=parts)
