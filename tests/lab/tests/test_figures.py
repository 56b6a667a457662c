"""The arithmetic of the benchmarks."""

import subprocess
import sys

import pytest

from shop_lab.bench import clients, orders, rounds
from shop_lab.bench.measure import Noise, cpu_seconds, stolen_seconds, tree_seconds, with_descendants
from shop_lab.bench.rounds import NOISE, Figures, Spread, interleaved, ratio


def stat(pid: int, parent: int, *ticks: int) -> str:
    """Return a line as that of /proc/PID/stat, of a process with a difficult name."""
    return f"{pid} (a (b) c) S {parent} 1 1 0 -1 0 0 0 0 0 {' '.join(map(str, ticks))} 20 0 1 0"


def test_a_spread_has_the_median_and_the_range() -> None:
    assert Spread.of([3, 1, 2, 10]) == Spread(2.5, 1, 10)


def test_a_ratio_compares_figures_of_the_same_round() -> None:
    # The machine was slower in the second round; the ratio was the same.
    assert ratio([{"cpu": 2}, {"cpu": 4}], [{"cpu": 4}, {"cpu": 8}], "cpu") == Spread(0.5, 0.5, 0.5)


async def test_every_other_round_is_in_reverse_order(monkeypatch: pytest.MonkeyPatch) -> None:
    made = []

    async def measure(name: str) -> Figures:
        made.append(name)
        return {"value": 1}

    monkeypatch.setattr(rounds, "NOISE_LIMIT", float("inf"))
    await interleaved({"a": lambda: measure("a"), "b": lambda: measure("b")}, 3)
    assert made == ["a", "b", "b", "a", "a", "b"]


async def test_of_a_noisy_round_and_its_repetition_the_quieter_one_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    noise = iter([50.0, 20.0])
    values = iter([1.0, 2.0, 3.0])
    monkeypatch.setattr(Noise, "percent", lambda _self: next(noise))

    async def measure() -> Figures:
        return {"value": next(values)}

    assert await rounds.quietly(measure) == ({"value": 2.0}, 20.0)


async def test_a_quiet_round_is_not_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Noise, "percent", lambda _self: 1.0)
    values = iter([1.0, 2.0])

    async def measure() -> Figures:
        return {"value": next(values)}

    assert await rounds.quietly(measure) == ({"value": 1.0}, 1.0)


async def test_what_takes_turns_has_the_noise_of_its_round(monkeypatch: pytest.MonkeyPatch) -> None:
    noise = iter([1.0, 2.0])
    monkeypatch.setattr(Noise, "percent", lambda _self: next(noise))

    async def measure() -> dict[str, Figures]:
        return {"a": {"value": 1}, "b": {"value": 2}}

    assert await rounds.in_turns(measure, 2) == {
        "a": [{"value": 1, NOISE: 1.0}, {"value": 1, NOISE: 2.0}],
        "b": [{"value": 2, NOISE: 1.0}, {"value": 2, NOISE: 2.0}],
    }


def test_the_figures_of_orders_are_those_of_all_their_runs() -> None:
    runs = [clients.Result(100, range(50), 0.5), clients.Result(50, range(50), 0.5)]
    found = orders.figures_of(runs, 0.3, range(1, 100))
    assert (found[orders.P50], found[orders.P99], found["p99_to_p50"]) == (50, 99, 99 / 50)
    assert found["orders_a_second"] == pytest.approx(100 / 1.5)
    assert (found[orders.CPU], found["client_cpu_milliseconds"]) == (3, 10)


def test_time_that_the_hypervisor_takes_is_read() -> None:
    assert stolen_seconds("cpu  100 200 300 9999 9999 10 20 70 50 0\ncpu0 1 2 3") == 0.7


def test_a_tree_has_the_time_of_all_descendants_and_of_those_that_ended() -> None:
    stats = [stat(1, 0, 500, 0, 0, 0), stat(7, 1, 10, 20, 30, 40), stat(8, 7, 100, 0, 0, 0), stat(9, 8, 0, 0, 0, 100)]
    assert tree_seconds(stats, 7) == 3.0
    assert tree_seconds(stats, 0) == 8.0


def test_the_cpu_time_of_processes_is_exact_and_has_that_of_descendants() -> None:
    # The shell does not become its last command, because one follows.
    command = [
        "sh",
        "-c",
        f"{sys.executable} -c 'import time\nwhile time.process_time() < 0.25: pass\nprint(1, flush=True)\ninput()'; :",
    ]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as shell:
        assert shell.stdin is not None
        assert shell.stdout is not None
        shell.stdout.readline()
        pids = with_descendants(shell.pid)
        assert len(pids) == 2
        assert cpu_seconds(pids[:1]) < 0.25 <= cpu_seconds(pids) < 0.5
        shell.stdin.write(b"\n")
