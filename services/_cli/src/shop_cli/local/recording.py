"""A recording of all telemetry of a laboratory's shop: export requests as they arrived, one per line."""

from base64 import b64encode
from contextlib import suppress
from pathlib import Path

from google.protobuf.message import Message
from typing_extensions import override

from shop_cli.local.otlp_receiver import Sink

FOLDER = "recording"
# An hour with ten orders a second; whoever recorded may have been killed.
_MAX_BYTES = 1024**3


class Recording(Sink):
    """Passes requests on; while its folder exists, appends each to `<folder>/<name of its message>`, in base64."""

    def __init__(self, folder: Path, sink: Sink) -> None:
        self._folder = folder
        self._sink = sink

    @override
    def add(self, message: Message) -> None:
        self._sink.add(message)
        if self._folder.is_dir():
            with suppress(FileNotFoundError), (self._folder / type(message).__name__).open("ab") as file:
                if file.tell() < _MAX_BYTES:
                    file.write(b64encode(message.SerializeToString()) + b"\n")
