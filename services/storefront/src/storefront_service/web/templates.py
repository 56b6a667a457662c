"""Templates, and how they show amounts and times."""

from collections.abc import Hashable, Mapping
from datetime import datetime
from decimal import Decimal
from functools import lru_cache
from typing import Any

from babel import Locale
from babel.numbers import format_currency, get_currency_name
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from chassis.money import Money
from storefront_service.web.static import StaticFiles

_LOCALE = Locale("en", "US")


class Templates:
    """Renders pages; every value is escaped."""

    def __init__(self, static: StaticFiles) -> None:
        self._environment = Environment(
            loader=PackageLoader("storefront_service"),
            autoescape=True,
            undefined=StrictUndefined,
            auto_reload=False,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        # The same on most pages, and half of a page's rendering.
        fragment = lru_cache(maxsize=1024)(self._fragment)
        self._environment.globals.update(static=static.url, picture=static.picture, fragment=fragment)
        self._environment.filters.update(money=money, currency_name=currency_name, time=_time, moment=_moment)

    def render(self, name: str, values: Mapping[str, Any]) -> str:
        return self._environment.get_template(name).render(values)

    def _fragment(self, name: str, **values: Hashable) -> Markup:
        return Markup(self.render(name, values))  # noqa: S704 - rendered by a template, which escapes


# Formatting takes 0.1 ms, and a shop has few different prices.
@lru_cache(maxsize=8192)
def money(amount: Money) -> str:
    """Return an amount as people write it, such as `$12.50`."""
    return format_currency(Decimal(amount.total_nanos).scaleb(-9), amount.currency_code, locale=_LOCALE)


@lru_cache(maxsize=256)
def currency_name(code: str) -> str:
    """Return a currency's name in the plural, such as `US dollars`."""
    return get_currency_name(code, count=2, locale=_LOCALE)


def _time(at: datetime) -> str:
    return at.strftime("%H:%M:%S.%f")[:-3]


def _moment(at: datetime) -> str:
    return at.strftime("%-d %B %Y, %H:%M UTC")
