"""Assigns the samples of a profile to the categories of the cost table."""

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

REST = "other"
GRPC = "gRPC and wake-ups"
CORE = "gRPC's own threads"
COMMITS, READS = "commits on their thread", "journal reads on their threads"
# By the beginning of a thread's name: its category. Work of ELSEWHERE_TOO is recognised on any thread.
THREADS = {"commit": COMMITS, "journal": READS, "Otel": "telemetry", "Thread-1 (_poll_wrapper)": GRPC}
ELSEWHERE_TOO = ("rendering", "spool", "validation", "protobuf and codec", "uuid and hash", "logs", "telemetry")
# By the beginning of a module's path or, after a colon, of a function in it; the first that matches counts. A stack
# belongs to the category of its innermost frame that has one, so the standard library's work is its caller's.
CATEGORIES = {
    "checkout_service/requests.py:validate": "validation",
    "chassis/values/fields.py": "validation",
    "chassis/values/text.py": "validation",
    "payment_service/cards.py": "validation",
    "stdnum/": "validation",
    "grpc/": GRPC,
    "grpc_health/": GRPC,
    "google/protobuf/": "protobuf and codec",
    "google/_upb/": "protobuf and codec",
    "shop/": "protobuf and codec",
    "shop_internal/": "protobuf and codec",
    "chassis/rpc/wire.py": "protobuf and codec",
    "chassis/values/money.py": "protobuf and codec",
    "checkout_service/peers/wire.py": "protobuf and codec",
    "checkout_service/journal/snapshots.py": "protobuf and codec",
    "chassis/rpc/serving.py": "wrapping of handlers and calls",
    "chassis/rpc/calls.py": "wrapping of handlers and calls",
    "chassis/rpc/client.py": "wrapping of handlers and calls",
    "chassis/rpc/status.py": "wrapping of handlers and calls",
    "chassis/errors.py": "wrapping of handlers and calls",
    "chassis/failpoints.py": "wrapping of handlers and calls",
    "structlog/": "logs",
    "logging/": "logs",
    "orjson/": "logs",
    "chassis/telemetry/logging.py": "logs",
    "opentelemetry/": "telemetry",
    "chassis/telemetry/instruments.py": "telemetry",
    "chassis/telemetry/metrics.py": "telemetry",
    "chassis/telemetry/propagation.py": "telemetry",
    "chassis/telemetry/sdk": "telemetry",
    "chassis/telemetry/drops.py": "telemetry",
    "checkout_service/metrics.py": "telemetry",
    "checkout_service/order_spans.py": "telemetry",
    "email_service/metrics.py": "telemetry",
    "jinja2/": "rendering",
    "markupsafe/": "rendering",
    "email/": "rendering",
    "email_service/rendering.py": "rendering",
    "email_service/mime.py": "rendering",
    "email_service/spool": "spool",
    "email_service/messages.py": "spool",
    "chassis/sql/group_commit.py": "asyncio, the loop, hops between threads",
    "chassis/sql/sqlite.py": "asyncio, the loop, hops between threads",
    "chassis/sql/postgres": "database driver",
    "psycopg": "database driver",
    "valkey/": "database driver",
    "redis/": "database driver",
    "checkout_service/journal/": "journal on the loop's thread",
    "uuid.py": "uuid and hash",
    "hmac.py": "uuid and hash",
    "hashlib.py": "uuid and hash",
    "_hashopenssl.c": "uuid and hash",
    "libcrypto": "uuid and hash",
    "chassis/values/keys.py": "uuid and hash",
    "checkout_service/": "saga, executor, placing",
    "payment_service/": "the service itself",
    "shipping_service/": "the service itself",
    "cart_service/": "the service itself",
    "email_service/": "the service itself",
    "product_catalog_service/": "the service itself",
    "currency_service/": "the service itself",
    "asyncio/": "asyncio, the loop, hops between threads",
    "concurrent/futures/": "asyncio, the loop, hops between threads",
    "uvloop/": "asyncio, the loop, hops between threads",
    "loop.c": "asyncio, the loop, hops between threads",
    "core.c": "asyncio, the loop, hops between threads",
    "linux.c": "asyncio, the loop, hops between threads",
    "async.c": "asyncio, the loop, hops between threads",
    "_asynciomodule.c": "asyncio, the loop, hops between threads",
}
_FRAME = re.compile(r"(?P<function>.*) \((?P<path>[^()]*?)(?::\d+)?\)$")
# Everything up to the folder from which the module is imported.
_IMPORT_ROOT = re.compile(r".*/(?:site-packages|dist-packages|src|gen|lib-dynload|lib/python3\.\d+)/")
_THREAD = re.compile(r"thread \((\d+)\): (.*)")
# Where a thread gives up the processor: such samples are no CPU time.
_BLOCKING = (
    "epoll_wait",
    "epoll_pwait",
    "poll",
    "select",
    "fdatasync",
    "fsync",
    "clock_nanosleep",
    "nanosleep",
    "read",
)
_WAITING = ("PyThread_acquire_lock", "pthread_cond_timedwait", "pthread_cond_wait", "sem_wait", "sem_clockwait")
_SYSTEM = ("libc.so", "ld-linux")


@dataclass(frozen=True)
class Sample:
    """A stack, from the outermost frame to the innermost, and how often it was seen."""

    thread_id: int
    thread: str
    frames: tuple[str, ...]
    count: int


def parse(folded: str) -> list[Sample]:
    """Read the output of `py-spy record --format raw --threads`."""
    samples = []
    for line in folded.splitlines():
        stack, _, count = line.rpartition(" ")
        thread, *frames = stack.split(";")
        found = _THREAD.match(thread)
        if found:
            samples.append(Sample(int(found[1]), found[2], tuple(frames), int(count)))
    return samples


def shares(samples: Iterable[Sample]) -> dict[int, dict[str, float]]:
    """Return, by thread id, which part of a thread's CPU time belongs to which category; the parts sum up to 1."""
    counts: dict[int, Counter[str]] = {}
    names = {}
    for sample in samples:
        names[sample.thread_id] = sample.thread
        counts.setdefault(sample.thread_id, Counter())
        if not is_blocked(sample.frames):
            counts[sample.thread_id][category_of_sample(sample)] += sample.count
    for thread_id, found in counts.items():
        if not found:  # it never worked when a sample was taken
            found[category_of_thread(names[thread_id]) or REST] = 1
    return {
        thread_id: {name: count / found.total() for name, count in found.items()} for thread_id, found in counts.items()
    }


def category_of_sample(sample: Sample) -> str:
    """Return the category of a stack on its thread."""
    found = category(sample.frames)
    return found if found in ELSEWHERE_TOO else category_of_thread(sample.thread) or found


def category_of_thread(thread: str) -> str | None:
    return next((found for name, found in THREADS.items() if thread.startswith(name)), None)


def category(frames: Iterable[str]) -> str:
    """Return the category of a stack."""
    for frame in reversed(tuple(frames)):
        place = _place(frame)
        for beginning, name in CATEGORIES.items():
            if place.startswith(beginning):
                return name
    return REST


def is_blocked(frames: tuple[str, ...]) -> bool:
    """Return whether the innermost frames are of a call of the system that waits."""
    if not frames or not any(each in frames[-1] for each in _SYSTEM):
        return False
    if frames[-1].partition(" ")[0] in _BLOCKING:
        return True
    return any(frame.startswith(_WAITING) for frame in frames[-4:])


def _place(frame: str) -> str:
    """Return a frame as `path/of/module.py:function`, the path as it is imported."""
    found = _FRAME.match(frame)
    if not found:
        return frame
    path = _IMPORT_ROOT.sub("", found["path"])
    return f"{path}:{found['function'].rpartition('.')[2]}"
