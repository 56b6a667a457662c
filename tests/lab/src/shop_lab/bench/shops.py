"""Whole shops as processes, of this code or of another commit's, which run side by side."""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import grpc

from shop_cli.local.ports import reserved
from shop_cli.local.processes import Shop
from shop_cli.local.workspace import default_ports, discover_services, root

_SCHEDULER_CLOCK = 2  # CPUCLOCK_SCHED of the kernel
_PAGE = os.sysconf("SC_PAGE_SIZE")
# Variables by which `make bench` would configure the make of another folder, and its own virtual environment.
_OF_MAKE = ("MAKEFLAGS", "MAKEOVERRIDES", "MFLAGS", "MAKELEVEL", "VIRTUAL_ENV")
_SIGNALS = ("trace.v1.Trace", "metrics.v1.Metrics", "logs.v1.Logs")
_COMPILE = """
import compileall, sysconfig
for folder in (sysconfig.get_path("purelib"), "services", "protos"):
    compileall.compile_dir(folder, quiet=2, workers=0)
"""


@dataclass(frozen=True)
class Running:
    """A shop that serves: its processes, and how long they took to start."""

    shop: Shop
    seconds_to_serve: float

    def cpu_seconds(self) -> float:
        """Return the CPU time that all services have used so far, user and system, to the nanosecond.

        /proc/PID/stat has clock ticks of 10 ms, more than what several orders cost.
        """
        # As clock_getcpuclockid(3) does, which Python lacks.
        return sum(time.clock_gettime((~process.pid << 3) | _SCHEDULER_CLOCK) for process in self.shop if process.pid)

    def resident_mebibytes(self) -> float:
        """Return the resident memory of all services."""
        pages = (Path(f"/proc/{process.pid}/statm").read_text().split()[1] for process in self.shop)
        return sum(int(resident) for resident in pages) * _PAGE / 2**20


@asynccontextmanager
async def running(checkout: Path, variables: Mapping[str, str]) -> AsyncIterator[Running]:
    """Run the nine services of a checkout, with environment variables; a sink discards their telemetry."""
    python = sys.executable if checkout == root() else str(checkout / ".venv/bin/python")
    programs = [replace(program, python=python) for program in discover_services(checkout)]
    names = default_ports(programs)
    async with AsyncExitStack() as stack:
        own = stack.enter_context(reserved(len(names)))
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(ignore_cleanup_errors=True)))
        sink = await stack.enter_async_context(_sink())
        endpoint = {"OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{sink}"}
        ports = dict(zip(names, own, strict=True))
        begun = time.monotonic()
        started = Shop(programs, folder, ports, {**os.environ, **variables, **endpoint})
        shop = await stack.enter_async_context(started)
        await shop.wait_until_serving()
        yield Running(shop, time.monotonic() - begun)


@asynccontextmanager
async def _sink() -> AsyncIterator[int]:
    """Discard the telemetry that services export to the port that is yielded, so that they pay its real cost."""
    export: Any = {"Export": grpc.unary_unary_rpc_method_handler(_discard)}
    names = [f"opentelemetry.proto.collector.{signal}Service" for signal in _SIGNALS]
    server = grpc.aio.server(handlers=[grpc.method_handlers_generic_handler(name, export) for name in names])
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        yield port
    finally:
        await server.stop(None)


async def _discard(_raw: bytes, _context: object) -> bytes:
    return b""


@contextmanager
def worktree(commit: str) -> Iterator[Path]:
    """Check a commit out into a temporary folder, with its own .venv of this interpreter; remove both on leaving."""
    with tempfile.TemporaryDirectory(prefix="bench-", ignore_cleanup_errors=True) as name:
        folder = Path(name) / "worktree"
        _run(root(), "git", "worktree", "add", "--quiet", "--detach", str(folder), commit)
        try:
            base = str(getattr(sys, "_base_executable", sys.executable))
            _run(folder, "make", "setup", f"PYTHON={base}")
            compile_bytecode(folder, str(folder / ".venv" / "bin" / "python"))
            yield folder
        finally:
            _run(root(), "git", "worktree", "remove", "--force", str(folder))


def compile_bytecode(folder: Path, python: str) -> None:
    """Compile a checkout and the packages of an interpreter: both shops shall start from bytecode, as images do.

    A process that compiles at its start uses about 5 % more CPU time from then on: its memory is more scattered.
    """
    _run(folder, python, "-c", _COMPILE)


def short_hash(commit: str) -> str:
    """Return the short hash of a commit. End the program if there is no such commit."""
    return _run(root(), "git", "rev-parse", "--short", "--verify", f"{commit}^{{commit}}").strip()


def _run(folder: Path, *command: str) -> str:
    variables = {name: value for name, value in os.environ.items() if name not in _OF_MAKE}
    done = subprocess.run(command, cwd=folder, env=variables, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)} failed: {done.stdout}{done.stderr}")
    return done.stdout
