"""A collector of telemetry, over both protocols of OTLP, that can refuse or hang."""

import threading
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import grpc
from google.protobuf.message import Message
from opentelemetry.proto.collector.logs.v1 import logs_service_pb2
from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2

_REQUESTS: dict[str, Any] = {
    "trace.v1.TraceService": trace_service_pb2.ExportTraceServiceRequest,
    "metrics.v1.MetricsService": metrics_service_pb2.ExportMetricsServiceRequest,
    "logs.v1.LogsService": logs_service_pb2.ExportLogsServiceRequest,
}
_PATHS = dict(zip(("/v1/traces", "/v1/metrics", "/v1/logs"), _REQUESTS.values(), strict=True))
# An empty message is a valid response to each.
_RESPONSE = b""


class Collector:
    """What a collector receives, and how it answers.

    Attributes:
        url: its endpoint.
        received: the export requests that it took.
        headers: those of the last request.
        refusal: status with which it refuses requests; None to take them.
        may_answer: cleared to make it hang.
        hanging: number of requests that hang.
    """

    def __init__(self) -> None:
        self.url = ""
        self.received: list[Any] = []
        self.headers: Mapping[str, str] = {}
        self.refusal: grpc.StatusCode | int | None = None
        self.may_answer = threading.Event()
        self.may_answer.set()
        self.hanging = 0

    def take(self, request: Message, headers: Mapping[str, str]) -> grpc.StatusCode | int | None:
        """Take a request, or return the status of its refusal."""
        self.headers = headers
        self.hanging += 1
        self.may_answer.wait(60)
        self.hanging -= 1
        if self.refusal is None:
            self.received.append(request)
        return self.refusal

    @property
    def spans(self) -> list[Any]:
        groups = [group for request in self.received for group in getattr(request, "resource_spans", ())]
        return [span for group in groups for scope in group.scope_spans for span in scope.spans]

    @property
    def records(self) -> list[Any]:
        groups = [group for request in self.received for group in getattr(request, "resource_logs", ())]
        return [record for group in groups for scope in group.scope_logs for record in scope.log_records]

    @property
    def metrics(self) -> dict[str, Any]:
        """The latest export of each metric, by name."""
        groups = [group for request in self.received for group in getattr(request, "resource_metrics", ())]
        return {metric.name: metric for group in groups for scope in group.scope_metrics for metric in scope.metrics}


@contextmanager
def grpc_collector(credentials: grpc.ServerCredentials | None = None, port: int = 0) -> Iterator[Collector]:
    """Serve OTLP over gRPC on a port of loopback, by default a free one."""
    collector = Collector()

    def handler(service: str) -> grpc.GenericRpcHandler:
        def export(request: Message, context: Any) -> bytes:
            refusal = collector.take(request, {key: str(value) for key, value in context.invocation_metadata()})
            if refusal is not None:
                context.abort(refusal, "refused")
            return _RESPONSE

        method = grpc.unary_unary_rpc_method_handler(export, _REQUESTS[service].FromString, bytes)
        return grpc.method_handlers_generic_handler(f"opentelemetry.proto.collector.{service}", {"Export": method})

    server = grpc.server(ThreadPoolExecutor(8))
    server.add_generic_rpc_handlers([handler(service) for service in _REQUESTS])
    if credentials:
        collector.url = f"https://127.0.0.1:{server.add_secure_port(f'127.0.0.1:{port}', credentials)}"
    else:
        collector.url = f"http://127.0.0.1:{server.add_insecure_port(f'127.0.0.1:{port}')}"
    server.start()
    try:
        yield collector
    finally:
        collector.may_answer.set()
        server.stop(0).wait()


@contextmanager
def http_collector() -> Iterator[Collector]:
    """Serve OTLP over HTTP on a free port of loopback."""
    collector = Collector()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            headers = {name.lower(): value for name, value in self.headers.items()}
            refusal = collector.take(_PATHS[self.path].FromString(body), headers)
            try:
                self.send_response(int(str(refusal or 200)))
                self.send_header("content-length", "0")
                self.end_headers()
            except OSError:
                pass  # the client did not wait

        def log_message(self, *_: object) -> None:
            """Do not log requests."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        collector.url = f"http://127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        try:
            yield collector
        finally:
            collector.may_answer.set()
            server.shutdown()
            thread.join()
