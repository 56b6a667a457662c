import os
from collections.abc import Mapping
from typing import Annotated

from chassis.settings import Parse, SecretStr, Settings, load_one
from chassis.sql.url import validate_url


def _parse_database_url(url: str) -> SecretStr:
    validate_url(url)
    return SecretStr(url)


# A URL such as `sqlite:///file.db` or `postgresql://user:password@host/name`. It may contain a password.
DatabaseUrl = Annotated[SecretStr, Parse(_parse_database_url)]


def load_database_url(settings: type[Settings], environment: Mapping[str, str] = os.environ) -> str:
    """Read only DATABASE_URL, because migrations don't need the other settings."""
    url: SecretStr = load_one(settings, "database_url", environment)
    return url.get_secret_value()
