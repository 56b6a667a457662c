"""Rejects control characters in every string of a request. Derived from the message type, it misses no field."""

import re
from collections.abc import Callable, Iterable
from typing import Any

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message

from chassis.errors import InvalidArgument

# Free text may span several lines; all other strings are names, codes or one-line addresses.
FREE_TEXT_FIELDS = frozenset({"street_address", "query"})

_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_CONTROL_BUT_TAB_AND_LINE_FEED = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")

Search = Callable[[Any], str | None]
"""Returns the path of the first string in a message that contains a control character."""


def text_check(descriptor: Descriptor) -> Callable[[Message], None]:
    """Return a check for messages of one type; build it once, when the method is registered.

    The check raises InvalidArgument with the path of the first string that contains a control character.
    """
    searches = list(_searches(descriptor))

    def check(message: Message) -> None:
        for search in searches:
            if path := search(message):
                raise InvalidArgument.field(path, "must not contain control characters")

    return check


def _searches(descriptor: Descriptor | None) -> Iterable[Search]:
    # No message type of the contract contains itself, so this ends.
    for field in descriptor.fields if descriptor else ():
        if field.type == FieldDescriptor.TYPE_STRING:
            yield _string_search(field)
        elif field.type == FieldDescriptor.TYPE_MESSAGE and (nested := list(_searches(field.message_type))):
            yield _message_search(field, nested)


def _string_search(field: FieldDescriptor) -> Search:
    name = field.name
    control = _CONTROL_BUT_TAB_AND_LINE_FEED if name in FREE_TEXT_FIELDS else _CONTROL

    def search_one(message: Message) -> str | None:
        value: str = getattr(message, name)
        # No printable string has a control character, and this is a third of the cost of the expression.
        return None if value.isprintable() or not control.search(value) else name

    def search_each(message: Message) -> str | None:
        for index, value in enumerate(getattr(message, name)):
            if control.search(value):
                return f"{name}[{index}]"
        return None

    return search_each if field.is_repeated else search_one


def _message_search(field: FieldDescriptor, nested: list[Search]) -> Search:
    name = field.name

    def search_one(message: Message) -> str | None:
        if message.HasField(name):
            value = getattr(message, name)
            for search in nested:
                if path := search(value):
                    return f"{name}.{path}"
        return None

    def search_each(message: Message) -> str | None:
        for index, value in enumerate(getattr(message, name)):
            for search in nested:
                if path := search(value):
                    return f"{name}[{index}].{path}"
        return None

    return search_each if field.is_repeated else search_one
