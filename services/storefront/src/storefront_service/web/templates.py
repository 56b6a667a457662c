from collections.abc import Hashable, Mapping
from functools import lru_cache
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from chassis.values.money import format_amount
from storefront_service.web.static import StaticFiles


class Templates:
    """Renders templates, escaping every value."""

    def __init__(self, static: StaticFiles) -> None:
        self._environment = Environment(
            loader=PackageLoader("storefront_service"),
            autoescape=True,
            undefined=StrictUndefined,
            auto_reload=False,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        # Cache the lists of categories and currencies, which look the same on most pages.
        fragment = lru_cache(maxsize=1024)(self._fragment)
        self._environment.globals.update(static=static.urls.__getitem__, picture=static.picture, fragment=fragment)
        self._environment.filters.update(
            money=format_amount,
            time=lambda at: at.strftime("%H:%M:%S.%f")[:-3],
            moment=lambda at: at.strftime("%-d %B %Y, %H:%M UTC"),
        )

    def render(self, name: str, values: Mapping[str, Any]) -> str:
        return self._environment.get_template(name).render(values)

    def _fragment(self, name: str, **values: Hashable) -> Markup:
        return Markup(self.render(name, values))  # noqa: S704 - the template has escaped its values
