import asyncio

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from chassis.errors import InvalidArgument
from storefront_service.pages.frame import Pages, found, require
from storefront_service.sessions import new_key

_MAX_QUERY = 256
_FEATURED, _IN_HERO = 12, 3


class BrowsingPages(Pages):
    def routes(self) -> list[Route]:
        return [
            Route("/", self.home),
            Route("/search", self.search),
            Route("/categories/{name:path}", self.category),
            Route("/products/{product_id:path}", self.product),
            Route("/product/{product_id:path}", self.redirect_to_product),  # ads written for other shops link here
            Route("/{path:path}/", self.redirect_without_slash),
        ]

    async def home(self, request: Request) -> Response:
        catalog = await self.catalog()
        frame, ad = await asyncio.gather(self.frame(request), self.clients.suggestions.ad([]))
        tiles = catalog.emblems()
        selection = [*dict.fromkeys(tiles.values())]
        featured = await self.priced(selection[:_FEATURED], frame.currency)
        hero = selection[_FEATURED : _FEATURED + _IN_HERO]
        return self.render("home.html", frame, hero=hero, featured=featured, tiles=tiles, ad=ad)

    async def search(self, request: Request) -> Response:
        """Show the products that match the query, or all products if there is no query."""
        query = " ".join(request.query_params.get("q", "").split())
        if len(query) > _MAX_QUERY:
            raise InvalidArgument.field("q", f"must have at most {_MAX_QUERY} characters")
        frame, catalog = await asyncio.gather(self.frame(request), self.catalog())
        products = await require("catalog", self.clients.catalog.search(query)) if query else catalog.products
        priced = await self.priced(products, frame.currency)
        title = f"Results for “{query}”" if query else "All products"
        return self.render("products.html", frame, title=title, products=priced, query=query, ad=None)

    async def category(self, request: Request) -> Response:
        name = request.path_params["name"]
        catalog = await self.catalog()
        products = found(catalog.by_category.get(name))
        frame, ad = await asyncio.gather(self.frame(request), self.clients.suggestions.ad([name]))
        priced = await self.priced(products, frame.currency)
        return self.render("products.html", frame, title=name.capitalize(), products=priced, current=name, ad=ad)

    async def product(self, request: Request) -> Response:
        catalog = await self.catalog()
        product = found(catalog.get(request.path_params["product_id"]))
        frame, (recommended, version), ad = await asyncio.gather(
            self.frame(request),
            self.recommended(request, [product.id]),
            self.clients.suggestions.ad(product.categories, page=request.url.path),
        )
        product, *others = await self.priced([product, *catalog.known(recommended)], frame.currency)
        return self.render(
            "product.html", frame, product=product, recommended=others, version=version, ad=ad, key=new_key()
        )

    async def redirect_without_slash(self, request: Request) -> Response:
        return RedirectResponse("/" + request.path_params["path"].strip("/"))

    async def redirect_to_product(self, request: Request) -> Response:
        catalog = await self.catalog()
        product = found(catalog.get(request.path_params["product_id"]))
        return RedirectResponse(f"/products/{product.id}", status_code=308)
