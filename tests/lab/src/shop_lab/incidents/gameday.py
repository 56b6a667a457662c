"""`shop gameday`: faults by a hidden schedule, the players' answers, and what it was."""

import getpass
import secrets
import time
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from chassis.errors import FailedPrecondition, InvalidArgument
from shop_cli.local.workspace import discover
from shop_cli.output.printing import counted, print_table
from shop_lab.incidents import catalogue, game, injector, record, scores
from shop_lab.incidents.commands import Namespace, Out, Release, begin, open_cluster, open_readings, say
from shop_lab.incidents.record import InjectedFault, Plan

gameday = typer.Typer(
    help="Find faults of a hidden schedule. Without a command, begin a game.", invoke_without_command=True
)


class NoGameDay(FailedPrecondition):
    """The folder has no record of a game day."""


@gameday.callback()
def play(
    context: typer.Context,
    *,
    faults: Annotated[int, typer.Option(min=1, max=game.MAX_FAULTS, help="How many faults.")] = 3,
    minutes: Annotated[int, typer.Option(max=480, help="How long the game lasts.")] = 60,
    seed: Annotated[int | None, typer.Option(help="Repeats a schedule. Default: at random.")] = None,
    out: Out = Path("runs"),
    namespace: Namespace = "",
    release: Release = "shop",
) -> None:
    """Break a laboratory by a hidden schedule until the time is over, or Ctrl-C."""
    if context.invoked_subcommand:
        return
    if not namespace:
        raise InvalidArgument.field("--namespace", "must name the laboratory that is to be broken")
    cluster = open_cluster(namespace, release)
    seed = secrets.randbelow(2**31) if seed is None else seed
    turns = game.plan(faults=faults, minutes=minutes, seed=seed)
    ids, lengths = zip(*((turn.fault.id, turn.seconds) for turn in turns), strict=True)
    begun = begin(cluster, Plan(faults=ids, seconds=lengths, seed=seed), out)
    (begun.folder / scores.ANSWERS).touch()
    say(f"{counted(faults, 'fault')} within {minutes} minutes")
    say("answer with `shop gameday answer`: first that something is wrong, then `shop gameday answer SERVICE`")
    try:
        inject = partial(injector.injected, target=cluster)
        with open_readings(cluster) as readings:
            game.Game(turns, minutes * 60, readings, inject, begun).run()
    finally:
        say("the game is over: `shop gameday reveal`")


@gameday.command()
def answer(
    service: Annotated[str, typer.Argument(metavar="[SERVICE]", help="The one at fault, once you know.")] = "",
    *,
    by: Annotated[str, typer.Option(help="Who answers. Default: the user.")] = "",
    out: Out = Path("runs"),
) -> None:
    """Say that something is wrong, or which service is at fault."""
    known = {program.name for program in discover()} | {fault.service for fault in catalogue.load_all().values()}
    if service not in known | {""}:
        raise InvalidArgument.field("SERVICE", f"must be one of {', '.join(sorted(known - {''}))}")
    folder = _latest(out)
    if (folder / scores.SCORES).exists():
        raise NoGameDay(f"the game of {folder} was revealed: start the next one with `shop gameday`")
    scores.add_answer(folder, scores.Answer(time=time.time_ns(), actor=by or getpass.getuser(), service=service))
    say(f"noted: {service or 'something'} is at fault")


@gameday.command()
def reveal(*, out: Out = Path("runs")) -> None:
    """Show a finished game's faults, how to find them, and the scores."""
    folder = _latest(out)
    truth = record.read(folder)[1]
    found = scores.score(truth.faults, scores.read_answers(folder))
    (folder / scores.SCORES).write_text(found.model_dump_json(indent=2) + "\n", encoding="utf-8")
    for injected in truth.faults:
        _show(injected)
    for problem in truth.problems:
        say(f"PROBLEM {problem}")
    columns = ["Fault", "Service", "Detected", "Located", "Mended"]
    print_table(
        columns,
        [(one.fault, one.service, *map(_after, (one.detected, one.located, one.mended))) for one in found.faults],
    )
    given = found.right + found.wrong
    say(f"{found.right} of {counted(given, 'answer')} right: precision {found.right / max(1, given):.0%}")


def _latest(out: Path) -> Path:
    """Return the folder of the latest game day. Raise NoGameDay."""
    games = list(out.glob(f"*/{scores.ANSWERS}"))
    if not games:
        raise NoGameDay(f"no game day in {out}: start one with `shop gameday`")
    return max(games, key=lambda path: path.stat().st_mtime).parent


def _show(injected: InjectedFault) -> None:
    fault, times = injected.fault, injected.times
    say(f"{fault.title}: {_clock(times.applied)} to {_clock(times.removed)}")
    say(f"  at fault: {fault.service}; customers see it by {' → '.join(fault.path)}")
    for step in fault.walk:
        say(f"  {step.question} {step.answer}: {step.promql}")
    say(f"  {fault.mitigation}")


def _clock(nanos: int | None) -> str:
    return "never" if nanos is None else datetime.fromtimestamp(nanos / 1e9, UTC).strftime("%H:%M:%S")


def _after(seconds: float | None) -> str:
    return "-" if seconds is None else f"{seconds:.0f} s"
