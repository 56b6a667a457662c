"""Requests for authentication."""

from pydantic import Field

from employee_api.fields import NonEmptyText
from employee_api.schemas import Input


class LoginInput(Input):
    """Credentials of any length: a password that is too long is a wrong one."""

    email: NonEmptyText = Field(examples=["grace@example.com"])
    password: NonEmptyText = Field(repr=False, examples=["nine brown otters swim"])
