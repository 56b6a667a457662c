import re
from typing import Any

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from chassis.errors import InvalidArgument
from chassis.values.fields import CONTROL, has_control

# Only these fields may contain line breaks and tabs.
FREE_TEXT_FIELDS = frozenset({"street_address", "query"})

_CONTROL_BUT_TAB_AND_LINE_FEED = re.compile(rf"[\r{CONTROL}]")


def check_text(message: Message) -> None:
    """Raise InvalidArgument with the field's path if any string in a message contains a control character."""
    # This text has ASCII control characters escaped. Searching it is five times as fast as visiting every field.
    text = str(message)
    if "\\" in text or (not text.isascii() and _CONTROL_BUT_TAB_AND_LINE_FEED.search(text)):
        _check_fields(message, "")


def _check_fields(message: Message, prefix: str) -> None:
    for field, value in message.ListFields():
        if field.type not in (FieldDescriptor.TYPE_STRING, FieldDescriptor.TYPE_MESSAGE):
            continue
        if not field.is_repeated:
            _check_value(field, value, prefix + field.name)
            continue
        for index, element in enumerate(value):
            _check_value(field, element, f"{prefix}{field.name}[{index}]")


def _check_value(field: FieldDescriptor, value: Any, path: str) -> None:
    if field.type == FieldDescriptor.TYPE_MESSAGE:
        _check_fields(value, f"{path}.")
    elif _CONTROL_BUT_TAB_AND_LINE_FEED.search(value) or (field.name not in FREE_TEXT_FIELDS and has_control(value)):
        raise InvalidArgument.field(path, "must not contain control characters")
