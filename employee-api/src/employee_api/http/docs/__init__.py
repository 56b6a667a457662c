"""The page that describes the API for people, rendered from the OpenAPI document."""
