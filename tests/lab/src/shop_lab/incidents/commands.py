"""`shop faults` and `shop incident`: break a laboratory, undo it, and record what happened."""

import math
import re
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import Annotated

import typer

from chassis.errors import InvalidArgument
from shop_cli.control_room_client import require_run
from shop_cli.output.printing import console, print_table
from shop_lab.incidents import catalogue, injector, state
from shop_lab.incidents.alerts import AlertRecorder
from shop_lab.incidents.cluster import Cluster
from shop_lab.incidents.cluster_telemetry import Stores
from shop_lab.incidents.exports import export
from shop_lab.incidents.leaks import find_leaks, texts_in, texts_of
from shop_lab.incidents.local import Local
from shop_lab.incidents.mechanisms import Target
from shop_lab.incidents.readings import ClusterReadings, LocalReadings, Readings
from shop_lab.incidents.record import Load, Plan, Record, Truth, read
from shop_lab.incidents.recording import read_recording, recording
from shop_lab.incidents.run import IncidentRun, Pace
from shop_lab.incidents.targets import CannotRestore
from shop_lab.incidents.telemetry import Telemetry

_DURATION = re.compile(r"(\d{1,4})([smh]?)")
_UNITS = {"": 1, "s": 1, "m": 60, "h": 3600}
_MAX_SECONDS = 3600
_DIFFERS = 1
_CUSTOMERS_SECONDS = 7200
_MAX_RATE = 10_000  # the load generator's

faults = typer.Typer(help="List faults, start and stop them in a laboratory.", invoke_without_command=True)
incident = typer.Typer(help="Run an incident with proof, and record it.", no_args_is_help=True)

Namespace = Annotated[
    str, typer.Option(help="A laboratory's namespace on a cluster. Default: the running shop of this machine.")
]
Release = Annotated[str, typer.Option(help="Its release, or `fullnameOverride`.")]
Identifier = Annotated[str, typer.Argument(metavar="FAULT", help="Id of a fault of the catalogue.")]


def open_target(namespace: str = "", release: str = "shop") -> Target:
    """Return a laboratory. Raise NoShop, NoLaboratory or CannotAct."""
    if namespace:
        cluster = Cluster(namespace, release)
        cluster.require_laboratory()
        return cluster
    return Local(Path(require_run().folder))


def parse_duration(text: str) -> float:
    """Return the seconds of a duration such as `90`, `90s`, `5m` or `1h`. Raise InvalidArgument."""
    found = _DURATION.fullmatch(text)
    seconds = int(found[1]) * _UNITS[found[2]] if found else 0
    if not 0 < seconds <= _MAX_SECONDS:
        raise InvalidArgument.field("--for", "must be a duration such as 90s or 5m, at most 1h")
    return seconds


def require_finite(parameter: typer.CallbackParam, value: float) -> float:
    """Refuse what compares with no bound, such as `nan`. Raise InvalidArgument."""
    if not math.isfinite(value):
        raise InvalidArgument.field(parameter.opts[0], "must be a number")
    return value


Rate = Annotated[
    float,
    typer.Option(min=0.1, max=_MAX_RATE, callback=require_finite, help="Customers a second of a local shop."),
]


@faults.callback()
def show_catalogue(context: typer.Context) -> None:
    """List faults, start and stop them in a laboratory."""
    if context.invoked_subcommand is None:
        rows = [(found.id, found.title, ", ".join(found.where)) for found in catalogue.load_all().values()]
        print_table(["Fault", "What it does", "Where it can run"], rows)


@faults.command("start")
def start_fault(
    fault: Identifier,
    *,
    duration: Annotated[str, typer.Option("--for", metavar="5m", help="When it ends by itself, at most 1h.")] = "5m",
    namespace: Namespace = "",
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
    namespace: Namespace = "",
    release: Release = "shop",
) -> None:
    """Undo what was injected, now."""
    target = open_target(namespace, release)
    undone = injector.restore(target, everything=not token, tokens=[token])
    if token not in {"", *(record.token for record in undone)}:
        raise InvalidArgument.field("token", "nothing of this name is injected")
    console.print(f"undone: {', '.join(record.token for record in undone) or 'nothing was injected'}", markup=False)


@faults.command("list")
def list_faults(*, namespace: Namespace = "", release: Release = "shop") -> None:
    """List what is injected, without saying what it is."""
    target = open_target(namespace, release)
    with suppress(CannotRestore):
        injector.restore(target)
    print_table(["Token", "Ends in "], [(record.token, f"{record.seconds_left:.0f} s") for record in target.records()])


@incident.command("run")
def run_incident(
    fault: Identifier,
    *,
    out: Annotated[Path, typer.Option(help="Folder of the records.")] = Path("runs"),
    seed: Annotated[int, typer.Option(help="Of a local shop's customers: the same seed gives the same.")] = 1,
    rate: Rate = 2.0,
    baseline: Annotated[int, typer.Option(min=1, help="Seconds before the fault.")] = 60,
    duration: Annotated[str, typer.Option("--for", metavar="5m", help="Default: as the catalogue says.")] = "",
    namespace: Namespace = "",
    release: Release = "shop",
) -> None:
    """Run a fault, prove that it bites and heals, and record it. Exit status 1 if the catalogue says otherwise."""
    found = catalogue.find(fault)
    seconds = parse_duration(duration) if duration else found.seconds
    target = open_target(namespace, release)
    injector.require(found, target)
    with ExitStack() as stack:
        stack.enter_context(alone(target))
        record, truth = begin(target, Plan(faults=(fault,), seconds=(seconds,), seed=seed), out, rate)
        stack.enter_context(record.begun())
        say(f"record {record.folder}, plan {truth.plan.digest()}")
        stack.enter_context(sending_customers(target, truth.load))
        collect = stack.enter_context(collecting(target))
        readings = stack.enter_context(open_readings(target))
        inject = partial(injector.injected, target=target)
        run = IncidentRun(found, seconds, readings, inject, record, truth, Pace(baseline=baseline), say)
        problems = list(run.run().problems)
        window, _ = read(record.folder)
        collect(window.began, window.ended or 0).write(record.folder / "telemetry")
    problems += find_leaks(texts_in(record.folder), found)
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


def begin(target: Target, plan: Plan, out: Path, rate: float) -> tuple[Record, Truth]:
    """Publish the hash of a plan in a new record; return that, and what is known before the start."""
    if isinstance(target, Local):
        record = Record(out, plan, "local")
        version, load = metadata.version("shop-cli"), Load(source="command", rate=rate, seed=plan.seed)
    else:
        record = Record(out, plan, "cluster", target.namespace)
        version, load = target.version(), Load(source="chart")
    versions = {"shop": version, "lab": metadata.version("shop-lab")}
    return record, Truth(id=record.id, plan=plan, where=record.where, versions=versions, load=load)


@contextmanager
def alone(target: Target) -> Iterator[None]:
    """Be a local shop's only incident or game while in the context, and undo what others left. Raise CannotAct."""
    with target.alone() if isinstance(target, Local) else nullcontext():
        with suppress(CannotRestore):
            injector.restore(target)
        yield


@contextmanager
def sending_customers(target: Target, load: Load, seconds: float = _CUSTOMERS_SECONDS) -> Iterator[None]:
    """Send customers to a local shop while in the context, at most so long; the chart has its own."""
    if not isinstance(target, Local):
        yield
        return
    settings = {
        "RATE": f"{load.rate:g}",
        "SHAPE": "steady",
        "DURATION_SECONDS": f"{seconds:.0f}",
        "SEED": f"incident {load.seed}",
    }
    inverse = {"mechanism": "load", "token": settings["SEED"]}
    record = state.Record(expires=time.time() + seconds, inverses=[inverse])
    record.own()  # a killed command leaves no customers behind
    target.save(record)
    target.guard(record)
    try:
        target.send_customers(settings)
        yield
    finally:
        injector.undo(record, target)


@contextmanager
def collecting(target: Target) -> Iterator[Callable[[int, int], Telemetry]]:
    """Yield what returns the telemetry between two times in nanoseconds; a local shop records it meanwhile."""
    if isinstance(target, Local):
        with recording(target.run) as folder:
            yield partial(read_recording, folder)
        return

    ports = {"prometheus": 9090, "jaeger": 16686, "loki": 3100}

    def collect(since_nanos: int, until_nanos: int) -> Telemetry:
        matcher = f'k8s_namespace_name="{target.namespace}"'
        with forwarded(target, ports) as (prometheus, jaeger, loki):
            return Stores(prometheus, jaeger, loki, matcher).collect(since_nanos, until_nanos)

    with forwarded(target, ports):
        pass  # a release that lacks one is refused before the fault
    yield collect


@contextmanager
def forwarded(cluster: Cluster, ports: Mapping[str, int]) -> Iterator[list[str]]:
    """Forward local ports to components of a release while in the context; yield their URLs."""
    with ExitStack() as stack:
        yield [
            f"http://127.0.0.1:{stack.enter_context(cluster.forwarded(f'service/{cluster.name(name)}', port))}"
            for name, port in ports.items()
        ]


@contextmanager
def open_readings(target: Target) -> Iterator[Readings]:
    if isinstance(target, Local):
        yield LocalReadings()
        return
    with forwarded(target, {"prometheus": 9090, "alertmanager": 9093}) as (prometheus, alertmanager):
        recorder = AlertRecorder(alertmanager)
        recorder.start()
        try:
            yield ClusterReadings(prometheus, target.namespace, recorder, target.compare, lambda: texts_of(target))
        finally:
            recorder.close()


def say(text: str) -> None:
    console.print(text, markup=False, soft_wrap=True)
