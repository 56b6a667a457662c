"""The names of all span attributes and metrics that the project exports.

Names come from OpenTelemetry's semantic conventions if they define one. Others begin with `shop.`, except for
`synthetic_request`. Only this module spells names out; `signals.md`, beside the chassis's README, is generated from it.
"""

from dataclasses import dataclass
from functools import partial
from typing import Literal, TypeAlias

# --- attributes from the conventions ---
RPC_SYSTEM = "rpc.system.name"
RPC_METHOD = "rpc.method"
# A later version of the conventions will rename this to rpc.status_code.
RPC_STATUS = "rpc.response.status_code"
ERROR_TYPE = "error.type"
SERVER_ADDRESS = "server.address"
SERVER_PORT = "server.port"
CLIENT_ADDRESS = "client.address"
HTTP_METHOD = "http.request.method"
HTTP_ROUTE = "http.route"
HTTP_STATUS = "http.response.status_code"
URL_PATH = "url.path"
URL_SCHEME = "url.scheme"
SESSION_ID = "session.id"
USER_ID = "user.id"
DB_SYSTEM = "db.system.name"
DB_OPERATION = "db.operation.name"
DB_BATCH_SIZE = "db.operation.batch.size"
DB_QUERY_SUMMARY = "db.query.summary"
DB_NAMESPACE = "db.namespace"
DB_STATUS = "db.response.status_code"
POOL_NAME = "db.client.connection.pool.name"
POOL_STATE = "db.client.connection.state"
CPU_MODE = "cpu.mode"
GC_GENERATION = "cpython.gc.generation"

# --- the shop's own attributes ---
SYNTHETIC_REQUEST = "synthetic_request"
ERROR_REASON = "shop.error.reason"
REQUEST_ID = "shop.request.id"
PORT_NAME = "shop.port.name"
SHED_REASON = "shop.server.shed.reason"
SIGNAL = "shop.telemetry.signal"
CACHE_NAME = "shop.cache.name"
CACHE_RESULT = "shop.cache.result"
FLUSH_STORE = "shop.flush.store"
ORDER_ID = "shop.order.id"
ORDER_CURRENCY = "shop.order.currency"
ORDER_TOTAL = "shop.order.total"
ORDER_ITEM_COUNT = "shop.order.item_count"
ORDER_ATTEMPT = "shop.order.attempt"
ORDER_FAILURES = "shop.order.failures"
ORDER_REPLAYED = "shop.order.replayed"
ORDER_STATE = "shop.order.state"
ORDER_STEP = "shop.order.step"
BATCH_SIZE = "shop.batch.size"
NOTIFICATION_KIND = "shop.notification.kind"
NOTIFICATION_FAILURES = "shop.notification.failures"
DECLINE_REASON = "shop.payment.decline.reason"
LETTER_STATE = "shop.email.letter.state"
ATTEMPT_OUTCOME = "shop.email.attempt.outcome"
MISMATCH_KIND = "shop.reconciliation.mismatch.kind"
HTTP_REFUSAL_REASON = "shop.http.refusal.reason"
REFUSAL_REASON = "shop.employee_api.refusal.reason"
REFUSED_OPERATION = "shop.employee_api.refusal.operation"
REFUSAL_ENFORCED = "shop.employee_api.refusal.enforced"

ATTRIBUTES = tuple(value for name, value in list(globals().items()) if name.isupper() and isinstance(value, str))


Kind: TypeAlias = Literal["counter", "up_down_counter", "gauge", "histogram"]

# The semantic conventions' bucket bounds, plus finer ones below 5 ms, because most calls are that fast.
SECONDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0)
SIZES = (1, 2, 4, 8, 16, 32, 64, 128)


@dataclass(frozen=True)
class Metric:
    """A metric that the project exports.

    Attributes:
        unit: a UCUM unit: `s`, `By`, or the counted items in braces, such as `{request}`.
        attributes: the keys that data points may have. Values come from a fixed set, never from ids or user input.
        bounds: the upper bounds of a histogram's buckets, in the metric's unit.
    """

    name: str
    kind: Kind
    unit: str
    description: str
    attributes: tuple[str, ...] = ()
    bounds: tuple[float, ...] = SECONDS

    @property
    def series(self) -> tuple[str, ...]:
        """The names of the series that Prometheus's OTLP receiver creates for the metric."""
        unit = {"s": "_seconds", "By": "_bytes", "1": "_ratio"}.get(self.unit, "")
        name = self.name.replace(".", "_")
        base = name if name.endswith(unit) else name + unit
        if self.kind == "histogram":
            return (f"{base}_bucket", f"{base}_count", f"{base}_sum")
        return (f"{base}_total" if self.kind == "counter" else base,)


_RPC = (RPC_SYSTEM, RPC_METHOD, RPC_STATUS, ERROR_TYPE)
_REFUSAL = (REFUSAL_REASON, REFUSED_OPERATION, REFUSAL_ENFORCED)
_HTTP = (HTTP_METHOD, URL_SCHEME, HTTP_STATUS, HTTP_ROUTE, ERROR_TYPE)


def _metric(kind: Kind, name: str, unit: str, description: str, *attributes: str) -> Metric:
    return Metric(name, kind, unit, description, attributes)


_counter, _gauge = partial(_metric, "counter"), partial(_metric, "gauge")
_up_down_counter = partial(_metric, "up_down_counter")


def _journal_gauge(name: str, unit: str, description: str, *attributes: str) -> Metric:
    return _gauge(name, unit, f"{description}; each replica reports the journal's", *attributes)


def _histogram(name: str, description: str, *attributes: str) -> Metric:
    return Metric(name, "histogram", "s", description, attributes)


# --- calls ---
RPC_SERVER_DURATION = _histogram("rpc.server.call.duration", "Duration of served calls", *_RPC)
RPC_CLIENT_DURATION = _histogram("rpc.client.call.duration", "Duration of outgoing calls", *_RPC, SERVER_ADDRESS)
HTTP_SERVER_DURATION = _histogram("http.server.request.duration", "Duration of HTTP requests", *_HTTP)
SMTP_CLIENT_DURATION = _histogram(
    "shop.smtp.client.operation.duration", "Duration of the transmission of a message to the mail relay", ERROR_TYPE
)
ACTIVE_REQUESTS = _up_down_counter("shop.server.active_requests", "{request}", "Requests in flight", PORT_NAME)
REQUEST_LIMIT = _gauge("shop.server.request_limit", "{request}", "Calls in flight beyond which a port sheds", PORT_NAME)
SHED_REQUESTS = _counter(
    "shop.server.shed_requests",
    "{request}",
    "Calls, requests and connections refused to protect the process",
    PORT_NAME,
    SHED_REASON,
)
DENIED_REQUESTS = _counter(
    "shop.server.denied_requests", "{request}", "Calls refused because their caller may not make them", RPC_METHOD
)
HTTP_REFUSALS = _counter(
    "shop.http.refusals", "{request}", "HTTP requests refused for host, length or a limit", HTTP_REFUSAL_REASON
)
RETRIED_REQUESTS = _counter(
    "shop.server.retried_requests", "{request}", "Received calls that repeat a failed attempt", RPC_METHOD
)

# --- stores ---
DB_CLIENT_DURATION = _histogram(
    "db.client.operation.duration", "Duration of the operations on a database", DB_SYSTEM, DB_OPERATION, ERROR_TYPE
)
POOL_CONNECTIONS = _up_down_counter(
    "db.client.connection.count", "{connection}", "Connections of a pool, by state: idle or used", POOL_NAME, POOL_STATE
)
POOL_MAX = _up_down_counter("db.client.connection.max", "{connection}", "Maximum size of a pool", POOL_NAME)
POOL_PENDING = _up_down_counter(
    "db.client.connection.pending_requests", "{request}", "Operations that wait for a connection", POOL_NAME
)
POOL_WAIT = _histogram("db.client.connection.wait_time", "Time until a pool provided a connection", POOL_NAME)
FLUSH_DURATION = _histogram("shop.flush.duration", "Duration of a batch of writes with its flush to disk", FLUSH_STORE)
FLUSH_SIZE = Metric("shop.flush.size", "histogram", "{write}", "Writes that shared a disk flush", (FLUSH_STORE,), SIZES)
RETENTION_PAUSED = _gauge(
    "shop.retention.paused", "{store}", "1 if nothing is deleted because the clock jumped by more than a day, else 0"
)
STORE_USAGE = _gauge("shop.store.usage", "By", "Size of the SQLite file with its write-ahead log")
STORE_VOLUME_USAGE = _gauge("shop.store.volume.usage", "By", "Used space of the volume with the SQLite file")
STORE_VOLUME_LIMIT = _gauge(
    "shop.store.volume.limit", "By", "Size of the volume with the SQLite file, without what is reserved for root"
)
CACHE_LOOKUPS = _counter(
    "shop.cache.lookups", "{lookup}", "Lookups in a cache: hit, stale or miss", CACHE_NAME, CACHE_RESULT
)

# --- processes ---
PROCESS_CPU = _counter("process.cpu.time", "s", "CPU time of the process", CPU_MODE)
PROCESS_MEMORY = _up_down_counter("process.memory.usage", "By", "Resident memory of the process")
PROCESS_THREADS = _up_down_counter("process.thread.count", "{thread}", "Threads of the process")
PROCESS_FILES = _up_down_counter("process.unix.file_descriptor.count", "{file_descriptor}", "Open file descriptors")
GC_COLLECTIONS = _counter("cpython.gc.collections", "{collection}", "Runs of Python's garbage collector", GC_GENERATION)
GC_PAUSE = _histogram("shop.gc.pause", "Pauses of the process for garbage collection")
LOOP_LAG = _histogram("shop.event_loop.lag", "Delay between the time a timer was due and the time it ran")
CERTIFICATE_EXPIRY = _gauge(
    "shop.tls.certificate.expiry", "s", "When the certificate expires, or the last of its authorities, since 1970"
)
CERTIFICATE_LIFETIME = _gauge("shop.tls.certificate.lifetime", "s", "Lifetime of the certificate")
FAILED_RELOADS = _counter("shop.tls.failed_reloads", "{reload}", "Failed reloads of the files in TLS_FOLDER")
TELEMETRY_DROPPED = _counter(
    "shop.telemetry.dropped", "{item}", "Spans, log records and metric exports that did not reach the collector", SIGNAL
)

# --- business ---
ORDERS_PLACED = _counter("shop.orders.placed", "{order}", "Orders placed, by currency", ORDER_CURRENCY)
REVENUE = _counter("shop.orders.revenue", "{amount}", "Totals of placed orders, in currency units", ORDER_CURRENCY)
ORDER_CHANGES = _counter("shop.orders.changes", "{change}", "Changes of an order's state", ORDER_STATE)
ORDER_RETRIES = _counter("shop.orders.retries", "{retry}", "Retried steps of orders", ORDER_STEP)
ORDERS_RECOVERED = _counter("shop.orders.recovered", "{order}", "Abandoned orders that recovery finished")
ORDERS = _journal_gauge("shop.orders.unfinished", "{order}", "Unfinished orders by state", ORDER_STATE)
OLDEST_OPEN_ORDER = _journal_gauge(
    "shop.orders.oldest_open.age", "s", "Longest time since an open order last changed its state"
)
OPERATOR_AGE = _journal_gauge(
    "shop.orders.needs_operator.age", "s", "Age of the oldest order that waits for an operator, by state", ORDER_STATE
)
OUTBOX_BACKLOG = _journal_gauge("shop.outbox.backlog", "{notification}", "E-mails to send and carts to empty")
OUTBOX_AGE = _journal_gauge(
    "shop.outbox.oldest.age", "s", "Age of the oldest unsent notification, without dead letters"
)
DEAD_LETTERS = _journal_gauge(
    "shop.outbox.dead_letters", "{notification}", "Notifications that failed for good", NOTIFICATION_KIND
)
FUTURE_ORDERS = _journal_gauge(
    "shop.orders.future", "{order}", "Orders dated in the future, 1000 at most: the clock was set back"
)
MISMATCHES = _gauge("shop.reconciliation.mismatches", "{order}", "Orders whose records disagree", MISMATCH_KIND)
RECONCILED_ORDERS = _gauge("shop.reconciliation.orders", "{order}", "Orders whose records were compared")
CART_ITEMS_ADDED = _counter("shop.cart.items_added", "{item}", "Items added to carts, by quantity")
DECLINES = _counter("shop.payment.declines", "{charge}", "Charges that were declined", DECLINE_REASON)
EMAIL_ATTEMPTS = _counter("shop.email.attempts", "{attempt}", "Attempts to send a message", ATTEMPT_OUTCOME)
LETTERS = _gauge("shop.email.letters", "{letter}", "Messages that are not sent", LETTER_STATE)
OLDEST_LETTER = _gauge("shop.email.oldest_letter.age", "s", "Age of the oldest message that waits for the mail relay")
EMPLOYEE_API_REFUSALS = _counter(
    "shop.employee_api.refusals", "{request}", "Requests refused, or that would be with AUTH_MODE=enforce", *_REFUSAL
)

METRICS = tuple(value for value in list(globals().values()) if isinstance(value, Metric))
