"""A laboratory on this machine: what `shop up --lab` runs. All that is injected there ends by itself."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from chassis.tls.certificates import Certificates
from shop_cli.local.run_file import DATA, Run, read_run
from shop_cli.local.workspace import internal_name
from shop_lab.incidents.state import Record, write_durably
from shop_lab.incidents.targets import CannotAct, Endpoint, NoLaboratory


@dataclass(frozen=True)
class Local:
    """The shop of a folder, whether it still runs or not; below the folder are the records of what was injected."""

    folder: Path

    def require_laboratory(self) -> Run:
        """Return the running shop. Raise CannotAct if it has ended, NoLaboratory if it is none."""
        run = read_run(self.folder)
        if run is None:
            raise CannotAct(f"no shop runs in {self.folder}: start it with `shop up --lab`")
        if not run.lab:
            raise NoLaboratory("the running shop is no laboratory: start it with `shop up --lab`")
        return run

    # ------------------------------------------------------------------ records

    @property
    def _lab(self) -> Path:
        return self.folder / DATA / "lab"

    def save(self, record: Record) -> None:
        self._lab.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_durably(self._lab / record.token, record.dump())

    def records(self) -> list[Record]:
        found = []
        for path in sorted(path for path in self._lab.glob("*") if not path.suffix):
            with suppress(FileNotFoundError):  # another process restores
                found.append(Record.load(path.read_text()))
        return found

    def forget(self, record: Record) -> None:
        (self._lab / record.token).unlink(missing_ok=True)

    def guard(self, record: Record) -> None:
        """Do nothing: failpoints and customers end by themselves."""

    # ------------------------------------------------------------------ what mechanisms need

    @contextmanager
    def endpoints(self, service: str) -> Iterator[Sequence[Endpoint]]:
        if read_run(self.folder) is None:
            yield []
            return
        run = self.require_laboratory()
        address = run.addresses.get(internal_name(service))
        if address is None:
            raise CannotAct(f"{service} has no failpoints: they are of the gRPC services of a running shop")
        certificates = Certificates.load(str(Path(run.tls_folder).with_name("lab"))) if run.tls_folder else None
        yield [Endpoint(service, address, certificates)]

    def send_customers(self, settings: Mapping[str, str], program: str = "") -> None:
        """Start a load generator that outlives this process."""
        url = f"http://{self.require_laboratory().addresses['storefront']}"
        variables = {"STOREFRONT_URL": url, "WEB_PORT": "0", **settings}
        command = ["-c", program] if program else ["-m", "load_generator"]
        nothing = subprocess.DEVNULL
        subprocess.run(
            ["setsid", "--fork", sys.executable, "-P", *command],
            cwd=self.folder,
            env={**os.environ, **variables},
            stdin=nothing,
            stdout=nothing,
            stderr=nothing,
            check=True,
        )

    def end_customers(self, seed: str) -> None:
        """End the load generator that was started with a seed."""
        for variables in Path("/proc").glob("[0-9]*/environ"):
            with suppress(OSError):  # of another user, or of a process that has ended
                if f"SEED={seed}".encode() in variables.read_bytes().split(b"\0"):
                    os.kill(int(variables.parent.name), signal.SIGTERM)
