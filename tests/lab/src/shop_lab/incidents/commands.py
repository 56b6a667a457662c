"""`shop faults` and `shop incident`: break a laboratory, undo it, and record what happened."""

import re
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager, suppress
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import Annotated

import httpx2
import typer

from chassis.errors import InvalidArgument
from shop_cli.control_room_client import require_run
from shop_cli.output.printing import console, print_table
from shop_lab.incidents import catalogue, injector
from shop_lab.incidents.alerts import AlertRecorder
from shop_lab.incidents.cluster import Cluster
from shop_lab.incidents.cluster_telemetry import Stores
from shop_lab.incidents.exports import export
from shop_lab.incidents.leaks import find_leaks, texts_in, texts_of
from shop_lab.incidents.local import Local
from shop_lab.incidents.mechanisms import Target
from shop_lab.incidents.readings import Readings
from shop_lab.incidents.record import Plan, Record, read
from shop_lab.incidents.run import IncidentRun, Pace
from shop_lab.incidents.targets import CannotRestore

_DURATION = re.compile(r"(\d{1,4})([smh]?)")
_UNITS = {"": 1, "s": 1, "m": 60, "h": 3600}
_MAX_SECONDS = 3600
_DIFFERS = 1

faults = typer.Typer(
    help="Start and stop faults in a laboratory. Without a command, list all.", invoke_without_command=True
)
incident = typer.Typer(help="Run an incident with proof, and record it.", no_args_is_help=True)

Namespace = Annotated[str, typer.Option(help="A laboratory's namespace on a cluster.")]
NamespaceOrLocal = Annotated[
    str, typer.Option(help="A laboratory's namespace on a cluster. Default: the running shop of this machine.")
]
Release = Annotated[str, typer.Option(help="Its release, or `fullnameOverride`.")]
Out = Annotated[Path, typer.Option(help="Folder of the records.")]
Identifier = Annotated[str, typer.Argument(metavar="FAULT", help="Id of a fault; `shop faults` lists them.")]


def open_target(namespace: str = "", release: str = "shop") -> Target:
    """Return a laboratory. Raise NoShop, NoLaboratory or CannotAct."""
    return open_cluster(namespace, release) if namespace else Local(Path(require_run().folder))


def open_cluster(namespace: str, release: str) -> Cluster:
    """Return a laboratory on a cluster. Raise NoLaboratory or CannotAct."""
    cluster = Cluster(namespace, release)
    cluster.require_laboratory()
    return cluster


def parse_duration(text: str) -> float:
    """Return the seconds of a duration such as `90`, `90s`, `5m` or `1h`. Raise InvalidArgument."""
    found = _DURATION.fullmatch(text)
    seconds = int(found[1]) * _UNITS[found[2]] if found else 0
    if not 0 < seconds <= _MAX_SECONDS:
        raise InvalidArgument.field("--for", "must be a duration such as 90s or 5m, at most 1h")
    return seconds


@faults.callback()
def show_catalogue(context: typer.Context) -> None:
    """List faults, start and stop them in a laboratory."""
    if context.invoked_subcommand is None:
        rows = [(found.id, found.title, "yes" if found.local else "") for found in catalogue.load_all().values()]
        print_table(["Fault", "What it does", "Without a cluster"], rows)


@faults.command("start")
def start_fault(
    fault: Identifier,
    *,
    duration: Annotated[str, typer.Option("--for", metavar="5m", help="When it ends by itself, at most 1h.")] = "5m",
    namespace: NamespaceOrLocal = "",
    release: Release = "shop",
) -> None:
    """Start a fault. It ends by itself, even if the shop or this command is killed."""
    found, seconds = catalogue.find(fault), parse_duration(duration)
    if not found.injections:
        raise InvalidArgument.field("FAULT", f"{fault} injects nothing, so there is nothing to start")
    target = open_target(namespace, release)
    record = injector.start(found, target, seconds)
    injector.leave(record, target)
    console.print(f"{record.token} ends in {record.seconds_left:.0f} s; `shop faults stop` ends it now", markup=False)


@faults.command("stop")
def stop_faults(
    token: Annotated[str, typer.Argument(help="What `shop faults start` has printed. Default: everything.")] = "",
    *,
    namespace: NamespaceOrLocal = "",
    release: Release = "shop",
) -> None:
    """Undo what was injected, now."""
    target = open_target(namespace, release)
    undone = injector.restore(target, everything=not token, tokens=[token])
    if token not in {"", *(record.token for record in undone)}:
        raise InvalidArgument.field("token", "nothing of this name is injected")
    console.print(f"undone: {', '.join(record.token for record in undone) or 'nothing was injected'}", markup=False)


@faults.command("list")
def list_faults(*, namespace: NamespaceOrLocal = "", release: Release = "shop") -> None:
    """List what is injected, without saying what it is."""
    target = open_target(namespace, release)
    with suppress(CannotRestore):
        injector.restore(target)
    print_table(["Token", "Ends in "], [(record.token, f"{record.seconds_left:.0f} s") for record in target.records()])


@incident.command("run")
def run_incident(
    fault: Identifier,
    *,
    namespace: Namespace,
    release: Release = "shop",
    out: Out = Path("runs"),
    baseline: Annotated[int, typer.Option(min=1, help="Seconds before the fault.")] = 60,
    duration: Annotated[str, typer.Option("--for", metavar="5m", help="Default: as the catalogue says.")] = "",
) -> None:
    """Run a fault, prove that it bites and heals, and record it. Exit status 1 if the catalogue says otherwise."""
    found = catalogue.find(fault)
    seconds = parse_duration(duration) if duration else found.seconds
    cluster = open_cluster(namespace, release)
    with open_stores(cluster):
        pass  # a release that lacks one is refused before the fault
    record = begin(cluster, Plan(faults=(fault,), seconds=(seconds,)), out)
    with record.begun(), open_readings(cluster) as readings:
        inject = partial(injector.injected, target=cluster)
        IncidentRun(found, seconds, readings, inject, record, Pace(baseline=baseline), say).run()
    window, _ = read(record.folder)
    with open_stores(cluster) as stores:
        stores.collect(window.began, window.ended or 0).write(record.folder / "telemetry")
    problems = [*record.truth.problems, *find_leaks(texts_in(record.folder), found)]
    for problem in problems:
        say(f"PROBLEM {problem}")
    if problems:
        raise typer.Exit(_DIFFERS)


@incident.command("export")
def export_incident(
    folder: Annotated[Path, typer.Argument(metavar="RUN", help="Folder of the record of a run.")],
    *,
    form: Annotated[str, typer.Option("--as", help="rcaeval or openrca.")],
    out: Annotated[Path, typer.Option(help="Folder to which it is added.")] = Path("exports"),
) -> None:
    """Write a run with its truth in the format of a benchmark."""
    say(f"written to {export(folder, form, out)}")


def begin(cluster: Cluster, plan: Plan, out: Path) -> Record:
    """Undo what others left, and begin a record, which publishes the hash of the plan."""
    with suppress(CannotRestore):
        injector.restore(cluster)
    versions = {"shop": cluster.version(), "lab": metadata.version("shop-lab")}
    record = Record(out, plan, cluster.namespace, versions)
    say(f"record {record.folder}, plan {plan.digest()}")
    return record


@contextmanager
def open_stores(cluster: Cluster) -> Iterator[Stores]:
    """Forward ports to the stores of a release's telemetry while in the context. Raise CannotAct if it lacks one."""
    with forwarded(cluster, {"prometheus": 9090, "jaeger": 16686, "loki": 3100}) as (prometheus, jaeger, loki):
        yield Stores(prometheus, jaeger, loki, f'k8s_namespace_name="{cluster.namespace}"')


@contextmanager
def forwarded(cluster: Cluster, ports: Mapping[str, int]) -> Iterator[list[str]]:
    """Forward local ports to components of a release while in the context; yield their URLs."""
    with ExitStack() as stack:
        yield [
            f"http://127.0.0.1:{stack.enter_context(cluster.forwarded(f'service/{cluster.name(name)}', port))}"
            for name, port in ports.items()
        ]


@contextmanager
def open_readings(cluster: Cluster) -> Iterator[Readings]:
    """Forward ports to what judges an incident while in the context, and record alerts. Raise CannotAct."""
    with (
        forwarded(cluster, {"prometheus": 9090, "alertmanager": 9093}) as (prometheus, alertmanager),
        httpx2.Client(base_url=prometheus) as client,
        closing(AlertRecorder(alertmanager)) as recorder,
    ):
        recorder.start()
        yield Readings(client, cluster.namespace, recorder, cluster.compare, lambda: texts_of(cluster))


def say(text: str) -> None:
    console.print(text, markup=False, soft_wrap=True)
