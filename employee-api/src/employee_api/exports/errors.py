"""Errors of exports. Their messages are part of the contract."""

from chassis.errors import FieldViolation, ResourceExhausted
from employee_api.errors import BadRequest


class TooManyExports(ResourceExhausted):
    """Each export occupies a database connection until its client has read everything."""

    def __init__(self) -> None:
        super().__init__("Too many exports at once", retry_after_seconds=5)


class UnknownTimeZone(BadRequest):
    """The parameter `tz` names no time zone, or one that only a newer version of the database server knows."""

    RULE = "must be a time zone of the IANA database, such as Europe/Berlin"

    def __init__(self) -> None:
        super().__init__(f"tz {self.RULE}", [FieldViolation("tz", self.RULE)])
