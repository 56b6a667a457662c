"""A laboratory on this machine: what `shop up --lab` runs."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import psycopg
import redis

from chassis.tls.certificates import Certificates
from shop_cli import control_room_client
from shop_cli.local.run_file import DATA, Run, read_run
from shop_cli.local.workspace import internal_name
from shop_lab.incidents.catalogue import Where
from shop_lab.incidents.state import Inverse, Record, RecordFolder
from shop_lab.incidents.targets import END_SESSIONS, CannotAct, Endpoint, NoLaboratory

_START_SECONDS = 300.0  # on a machine that is busy with something else


class Local(RecordFolder):
    """The shop of a folder, whether it still runs or not: what was injected is restored in either case."""

    @property
    def run(self) -> Run:
        """The running shop. Raise CannotAct if it has ended, NoLaboratory if it is none."""
        run = read_run(self.folder)
        if run is None:
            raise CannotAct(f"no shop runs in {self.folder}: start it with `shop up --lab`")
        if not run.lab:
            raise NoLaboratory("the running shop is no laboratory: start it with `shop up --lab`")
        return run

    @property
    def kinds(self) -> frozenset[Where]:
        return frozenset({"local", "postgres"}) if self._valkey_url() else frozenset({"local"})

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Be the only incident or game while in the context. Raise CannotAct if there is one."""
        with ExitStack() as stack:
            try:
                stack.enter_context(self.locked("incident", wait=False))
            except BlockingIOError:
                raise CannotAct("another incident or game runs in this shop") from None
            yield

    def guard(self, record: Record) -> None:
        """Start a process that outlives this one, and `shop up` as well."""
        self._detached("-m", "shop_lab.incidents.watcher", str(self.folder))

    @contextmanager
    def endpoints(self, service: str) -> Iterator[Sequence[Endpoint]]:
        if read_run(self.folder) is None:
            yield []
            return
        run = self.run
        address = run.addresses.get(internal_name(service))
        if address is None:
            raise CannotAct(f"{service} has no failpoints: they are of the gRPC services of a running shop")
        certificates = Certificates.load(str(Path(run.tls_folder).with_name("lab"))) if run.tls_folder else None
        yield [Endpoint(service, address, certificates)]

    def _modules(self, service: str) -> Path:
        return self.folder / DATA / "modules" / service

    def modules(self, service: str) -> Mapping[str, str]:
        return {path.name: path.read_text() for path in self._modules(service).glob("*.py")}

    def replace_modules(self, service: str, changes: Mapping[str, str | None]) -> None:
        folder = self._modules(service)
        folder.mkdir(parents=True, exist_ok=True)
        for file, text in changes.items():
            if text is None:
                (folder / file).unlink(missing_ok=True)
            else:
                (folder / file).write_text(text)
        if read_run(self.folder):
            self._restart(service)

    def restoring_modules(self, service: str, file: str) -> Inverse:
        return {}

    def _restart(self, service: str) -> None:
        """Restart a service and wait until its successor serves."""
        before = self._service(service)["restarts"]
        control_room_client.act("restart", service, self.run)
        end = time.monotonic() + _START_SECONDS
        while (found := self._service(service))["restarts"] == before or found["state"] != "serving":
            if time.monotonic() > end:
                raise CannotAct(f"{service} did not restart: `shop logs {service}`")
            time.sleep(0.2)

    def _service(self, name: str) -> dict[str, Any]:
        services = control_room_client.status(self.run)["services"]
        for found in services:
            if found["name"] == name:
                return dict(found)
        raise CannotAct(f"the shop has no service {name!r}")

    def query(self, store: str, database: str, statement: str) -> str:
        """Run a statement or command in a store, and return its first result."""
        try:
            return self._command(statement) if store == "valkey" else self._execute(database, statement)
        except (psycopg.Error, redis.RedisError) as error:
            hint = "" if self._valkey_url() else "; `shop up --lab --postgres` starts it"
            name = "Valkey" if store == "valkey" else "PostgreSQL"
            raise CannotAct(f"{name}: {' '.join(str(error).split())}{hint}") from error

    def _execute(self, database: str, statement: str) -> str:
        if not self._sockets.exists():
            raise CannotAct("this shop has no PostgreSQL: start it with `shop up --lab --postgres`")
        with psycopg.connect(self._url(database), autocommit=True, connect_timeout=60) as connection:
            cursor = connection.execute(statement.encode())
            row = cursor.fetchone() if cursor.description else None
            return "" if row is None else str(row[0])

    def _url(self, database: str) -> str:
        return f"postgresql://postgres@/{database}?host={self._sockets}"

    @property
    def _sockets(self) -> Path:
        return self.folder / DATA / "postgres"

    def _command(self, command: str) -> str:
        if read_run(self.folder) is None:
            return ""  # its settings ended with it
        url = self._valkey_url()
        if not url:
            raise CannotAct("this shop has no Valkey: start it with `shop up --lab --postgres`")
        with redis.Redis.from_url(url, protocol=2, decode_responses=True) as connection:
            found = connection.execute_command(*command.split())
        values = list(found.items())[-1] if isinstance(found, dict) else found
        return str(values[-1] if isinstance(values, (list, tuple)) else values)

    def background(self, store: str, database: str, statements: Sequence[str], token: str) -> None:
        """Open a session for a transaction; the watcher applies what only comes later."""
        if statements[0] == "BEGIN":
            self._detached("-m", "shop_lab.incidents.session", self._url(database), token, *statements)

    def end_background(self, store: str, token: str) -> None:
        self._kill(token)
        if store == "postgresql" and read_run(self.folder):
            self.query(store, "postgres", END_SESSIONS.format(token))  # a server that waits does not miss its client

    def send_customers(self, settings: Mapping[str, str], program: str = "") -> None:
        variables = {"STOREFRONT_URL": f"http://{self.run.addresses['storefront']}", "WEB_PORT": "0", **settings}
        command = ("-c", program) if program else ("-m", "load_generator")
        self._detached(*command, settings["SEED"], variables=variables)

    def end_customers(self, seed: str) -> None:
        self._kill(seed)

    def _valkey_url(self) -> str:
        """Return the URL that the cart uses, "" without Valkey."""
        texts = environments(self.run).values()
        entries = [entry for text in texts for entry in text.split("\0") if entry.startswith("REDIS_URL=")]
        return entries[0].partition("=")[2] if entries else ""

    def _detached(self, *arguments: str, variables: Mapping[str, str] | None = None) -> None:
        """Start a process that outlives this one."""
        subprocess.run(
            ["setsid", "--fork", sys.executable, "-P", *arguments],
            cwd=self.folder,
            env={**os.environ, **(variables or {})},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            check=True,
        )

    def _kill(self, token: str) -> None:
        """End the processes that were started so, with a token among their arguments."""
        for process in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                arguments = (process / "cmdline").read_bytes().split(b"\0")
                if token.encode() in arguments and (process / "cwd").readlink() == self.folder:
                    os.kill(int(process.name), signal.SIGTERM)


def environments(run: Run) -> dict[str, str]:
    """Return the variables of the services and stores of a shop, by the file that has them."""
    found = {}
    for pid in Path(f"/proc/{run.pid}/task/{run.pid}/children").read_text().split():
        with suppress(OSError):  # a process that has ended
            path = Path("/proc", pid, "environ")
            found[str(path)] = path.read_text(errors="replace")
    return found
