from collections.abc import Hashable
from functools import lru_cache

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from chassis.values.money import format_amount
from storefront_service.web.static import StaticFiles


def load_templates(static: StaticFiles) -> Environment:
    """Return the environment of the pages' templates, which escape every value."""
    environment = Environment(
        loader=PackageLoader("storefront_service"),
        autoescape=True,
        undefined=StrictUndefined,
        auto_reload=False,
        trim_blocks=True,
        lstrip_blocks=True,
    )

    @lru_cache(maxsize=1024)  # for the lists of categories and currencies, which look the same on most pages
    def fragment(name: str, **values: Hashable) -> Markup:
        return Markup(environment.get_template(name).render(values))  # noqa: S704 - the template has escaped its values

    environment.globals.update(static=static.urls.__getitem__, picture=static.picture, fragment=fragment)
    environment.filters.update(
        money=format_amount,
        time=lambda at: at.strftime("%H:%M:%S.%f")[:-3],
        moment=lambda at: at.strftime("%-d %B %Y, %H:%M UTC"),
    )
    return environment
