import asyncio
import json
import os
import secrets
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, Self

import grpc
from grpc_health.v1.health_pb2 import HealthCheckRequest, HealthCheckResponse
from grpc_health.v1.health_pb2_grpc import HealthStub
from typing_extensions import override

from chassis.rpc.client import OPTIONS
from chassis.rpc.connection import open_channel
from chassis.tls.certificates import Certificates, Identity
from shop_cli.local.child_process import START_SECONDS, ChildProcess
from shop_cli.local.identities import Identities
from shop_cli.local.ports import HOST, require_free
from shop_cli.local.workspace import Program, UnknownService, address_variable, internal_name

# Don't pass these variables on to services: they differ between services, or may be meant for another program.
_NOT_INHERITED = (
    *("HOST", "PORT", "INTERNAL_PORT", "HEALTH_PORT", "DATABASE_URL", "FAILPOINTS", "HMAC_KEY"),
    *("TLS_FOLDER", "ALLOWED_CALLS", "LAB"),
)

_DEFAULTS = {
    "GRPC_VERBOSITY": "NONE",  # gRPC's own log lines are not JSON, and may quote requests
    "GRPC_ENABLE_FORK_SUPPORT": "0",
    # The container images set this too. The chassis's decisions/0007-event-engine-off.md explains why.
    "GRPC_EXPERIMENTS": "-event_engine_client,-event_engine_listener",
    "DRAIN_SECONDS": "0",
    "ALLOWED_HOSTS": "localhost,127.0.0.1,[::1]",  # prevents DNS rebinding attacks
}

_SECRET_BYTES = 32
_HEALTH_SECONDS = 3.0  # more than the 2 s that HTTP services' readiness checks wait for the database


class Process(ChildProcess):
    """A service's process, which keeps its address across restarts.

    Args:
        environment: the service's environment variables, except HOST, PORT and INTERNAL_PORT.
        folder: the working directory, with data under `.shop/` and the log in `.shop/log/<name>.log`. Secrets that
            `environment` does not contain are read from `.shop-secrets/<name>/`.
        internal_port: the port for the program's internal gRPC services, if any; 0 lets the system choose a port.
        certificates: client certificates for calls to the service; None if it does not use TLS.
    """

    def __init__(
        self,
        program: Program,
        port: int,
        environment: Mapping[str, str],
        folder: Path,
        internal_port: int = 0,
        *,
        certificates: Certificates | None = None,
    ) -> None:
        super().__init__(program.name, folder / ".shop" / "log" / f"{program.name}.log")
        self.program = program
        self.port = port
        self.address = f"{HOST}:{port}"
        self.internal_port = internal_port
        self.internal_address = f"{HOST}:{internal_port}"
        missing = [variable for variable in program.secrets if variable not in environment]
        created = {name: _load_secret(folder / ".shop-secrets" / program.name / name) for name in missing}
        ports = {"PORT": str(port), "INTERNAL_PORT": str(internal_port)}
        self.environment = {**environment, **created, "HOST": HOST, **ports}
        self._folder = folder
        self.certificates = certificates

    @property
    def identity(self) -> Identity | None:
        """The client identity for calls to the service; None if it does not use TLS."""
        return self.certificates.refresh() if self.certificates else None

    @override
    async def start(self, **variables: str) -> None:
        """Start the process with additional environment variables. Raise PortInUse if one of its ports is taken."""
        self.require_free_ports()
        command = (self.program.python, "-P", "-m", self.program.module)
        await self.spawn(*command, folder=self._folder, environment={**self.environment, **variables})

    @override
    def require_free_ports(self) -> None:
        for name, port in ((self.name, self.port), (internal_name(self.name), self.internal_port)):
            if port:
                require_free(port, name)

    async def restart(self, **variables: str) -> None:
        await self.stop()
        await self.start(**variables)
        await self.wait_until_serving()

    @override
    async def is_serving(self) -> bool | None:
        if not self.running or self.paused:
            return False
        try:
            async with asyncio.timeout(_HEALTH_SECONDS):
                if self.state == "serving" and self.program.protocol == "grpc":
                    return await self._reports_serving()
                # Try plain TCP first: while a service isn't listening yet, this costs less than opening a gRPC channel.
                reader, writer = await asyncio.open_connection(HOST, self.port)
                with closing(writer):
                    if self.program.protocol == "grpc":
                        return await self._reports_serving()
                    writer.write(f"GET /readyz HTTP/1.0\r\nHost: {self.address}\r\n\r\n".encode())
                    return (await reader.readline()).split()[1:2] == [b"200"]
        except (OSError, TimeoutError, grpc.aio.AioRpcError):
            return None

    async def _reports_serving(self) -> bool:
        # Use the clients' channel options: a process that clients can't reach, say because of a proxy, isn't ready.
        async with open_channel(self.address, self.identity, OPTIONS) as channel:
            health: Any = HealthStub(channel)
            response = await health.Check(HealthCheckRequest())
        return bool(response.status == HealthCheckResponse.SERVING)


class Shop:
    """A shop's processes, each configured with the addresses of the others.

    Entering the context starts all processes; leaving it stops them. Enter it in a thread that lives as long as the
    shop, because Linux kills the processes when the thread that started them ends.

    Args:
        ports: ports by program name, and ports for internal services by `internal_name`.
        environment: variables for all processes; by default, this process's environment.
        overrides: additional variables for individual processes, by program name.
    """

    def __init__(
        self,
        programs: Sequence[Program],
        folder: Path,
        ports: Mapping[str, int],
        environment: Mapping[str, str] | None = None,
        overrides: Mapping[str, Mapping[str, str]] | None = None,
        *,
        identities: Identities | None = None,
    ) -> None:
        addresses = {address_variable(name): f"{HOST}:{port}" for name, port in ports.items()}
        common = {**inherited(os.environ if environment is None else environment), **addresses}
        certificates = identities.operator if identities else None
        self._folder = folder
        self._processes: dict[str, Process] = {}
        for program in programs:
            name, internal_port = program.name, ports.get(internal_name(program.name), 0)
            own = identities.variables(name) if identities else {}
            variables = {**common, **own, **(overrides or {}).get(name, {})}
            self._processes[name] = Process(
                program, ports[name], variables, folder, internal_port, certificates=certificates
            )

    def __iter__(self) -> Iterator[Process]:
        return iter(self._processes.values())

    def __getitem__(self, name: str) -> Process:
        if name not in self._processes:
            raise UnknownService(f"{name} is not part of this shop: {', '.join(self._processes)} are")
        return self._processes[name]

    async def __aenter__(self) -> Self:
        for process in self:  # check all ports before starting anything
            process.require_free_ports()
        try:
            await self._migrate()
            for process in self:
                await process.start()
        except BaseException:
            await self.stop()
            raise
        return self

    async def _migrate(self) -> None:
        """Migrate all databases in one process; otherwise, each service would spend a second importing Alembic.

        Ignore errors, because each service reports its own database's errors when it starts.
        """
        databases = {
            process.environment.get("DATABASE_URL", f"sqlite:///.shop/{process.name}.db"): str(migrations)
            for process in self
            if (migrations := process.program.migrations)
        }
        child = await asyncio.create_subprocess_exec(
            *(next(iter(self)).program.python, "-P", "-m", "chassis.sql.migrate"),
            stdin=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
            cwd=self._folder,
        )
        await child.communicate(json.dumps(databases).encode())

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def wait_until_serving(self, timeout_seconds: float = START_SECONDS) -> None:
        """Wait until all processes are ready. Raise ProcessDied or NotServing as soon as one fails."""
        await asyncio.gather(*(process.wait_until_serving(timeout_seconds) for process in self))

    async def stop(self) -> None:
        """Stop all processes gracefully and in parallel. If cancelled, kill the processes that are still running."""
        try:
            await asyncio.gather(*(process.stop() for process in self))
        finally:
            for process in self:
                process.kill()


def inherited(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the local defaults, overridden by the variables that services inherit from `environment`."""
    return {**_DEFAULTS, **{name: value for name, value in environment.items() if name not in _NOT_INHERITED}}


def _load_secret(path: Path) -> str:
    """Return the secret in a file. If there is no file, generate a secret and save it, readable only by its owner."""
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        draft = path.with_suffix(".new")
        draft.touch(mode=0o600)
        draft.write_text(secrets.token_hex(_SECRET_BYTES), encoding="ascii")
        draft.replace(path)
    return path.read_text(encoding="ascii")
