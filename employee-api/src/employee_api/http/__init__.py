"""Operations on top of Starlette: their requests and responses, routes, OpenAPI document, and documentation page."""
