"""What services export, recorded whole."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from google.protobuf.message import Message
from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2
from opentelemetry.proto.metrics.v1.metrics_pb2 import Metric

from shop_cli.local.otlp_receiver import attributes_of, receiver, spans_of
from shop_cli.local.spans import Span


@dataclass
class Received:
    """All export requests so far in order of arrival, and the spans in them. Unbounded: for short runs only."""

    messages: list[Message] = field(default_factory=list)
    spans: list[Span] = field(default_factory=list)

    def add(self, message: Message) -> None:
        self.messages.append(message)
        self.spans += spans_of(message)

    @property
    def metrics(self) -> list[tuple[str, Metric]]:
        """All metrics of all export requests, each with the name of its service."""
        return [
            (str(attributes_of(group.resource.attributes).get("service.name", "")), metric)
            for message in self.messages
            if isinstance(message, metrics_service_pb2.ExportMetricsServiceRequest)
            for group in message.resource_metrics
            for scope in group.scope_metrics
            for metric in scope.metrics
        ]


@asynccontextmanager
async def receiving(port: int) -> AsyncIterator[Received]:
    """Run a receiver on a port of loopback while in the context; yield all that it receives."""
    received = Received()
    async with receiver(port, received.add):
        yield received
