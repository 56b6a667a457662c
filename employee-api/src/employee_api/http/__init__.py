"""Operations on top of Starlette: reading and writing them, routing, their OpenAPI description and its page."""
