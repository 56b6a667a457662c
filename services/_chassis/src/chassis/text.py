"""Rejects control characters in every string of a request. Derived from the message type, so it covers every field."""

import re
from collections.abc import Callable, Iterable
from typing import cast

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message

from chassis.errors import InvalidArgument

# Free text may span several lines; all other strings are names, codes or one-line addresses.
FREE_TEXT_FIELDS = frozenset({"street_address", "query"})

_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_CONTROL_BUT_TAB_AND_LINE_FEED = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")

FieldCheck = Callable[[Message, str], None]


def text_check(descriptor: Descriptor) -> Callable[[Message], None]:
    """Return a check for messages of one type; build it once, when the method is registered.

    The check raises InvalidArgument with the path of the first string that contains a control character.
    """
    checks = list(_field_checks(descriptor))

    def check(message: Message) -> None:
        for check_field in checks:
            check_field(message, "")

    return check


def _field_checks(descriptor: Descriptor | None) -> Iterable[FieldCheck]:
    for field in descriptor.fields if descriptor else ():
        if field.type == FieldDescriptor.TYPE_STRING:
            yield _string_check(field)
        elif field.type == FieldDescriptor.TYPE_MESSAGE and (nested := list(_field_checks(field.message_type))):
            yield _message_check(field, nested)


def _string_check(field: FieldDescriptor) -> FieldCheck:
    name = field.name
    control = _CONTROL_BUT_TAB_AND_LINE_FEED if name in FREE_TEXT_FIELDS else _CONTROL

    def check_one(message: Message, path: str) -> None:
        if control.search(getattr(message, name)):
            raise InvalidArgument.field(path + name, "must not contain control characters")

    def check_each(message: Message, path: str) -> None:
        for index, value in enumerate(getattr(message, name)):
            if control.search(value):
                raise InvalidArgument.field(f"{path}{name}[{index}]", "must not contain control characters")

    return check_each if field.is_repeated else check_one


def _message_check(field: FieldDescriptor, nested: list[FieldCheck]) -> FieldCheck:
    name = field.name

    def check_one(message: Message, path: str) -> None:
        if message.HasField(name):
            value = cast("Message", getattr(message, name))
            for check in nested:
                check(value, f"{path}{name}.")

    def check_each(message: Message, path: str) -> None:
        for index, value in enumerate(getattr(message, name)):
            for check in nested:
                check(value, f"{path}{name}[{index}].")

    return check_each if field.is_repeated else check_one
