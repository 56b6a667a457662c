from pathlib import Path

from shop_lab.mutants.copies import Copy
from shop_lab.mutants.devices import DEVICES
from shop_lab.mutants.prove_runs import SEEDS, ProveRun, ResultsFile, control_options, prove_with_all_seeds, row


def runs(*verdicts: str) -> list[ProveRun]:
    return [
        ProveRun("fence", "--orders 9", seed, verdict, ("I1",) if verdict == "violated" else (), 20)
        for seed, verdict in enumerate(verdicts, start=1)
    ]


def test_runs_in_the_file_are_not_repeated(tmp_path: Path) -> None:
    file = tmp_path / "results.jsonl"
    earlier = runs(*["violated"] * len(SEEDS))
    for run in earlier:
        ResultsFile(file).append(run)
    nowhere = Copy(tmp_path / "nowhere")
    assert prove_with_all_seeds(nowhere, "fence", "--orders 9", ResultsFile(file), jobs=2) == earlier


def test_runs_with_other_options_are_not_found(tmp_path: Path) -> None:
    results = ResultsFile(tmp_path / "results.jsonl")
    results.append(runs("violated")[0])
    assert ResultsFile(tmp_path / "results.jsonl").find("fence", "--orders 8", 1) is None


def test_only_a_violation_counts_as_caught() -> None:
    assert row(runs("violated", "insufficient", "no verdict")) == "1 of 3 | I1 | insufficient, no verdict | 20 s each"


def test_each_device_is_exercised_by_options_or_has_a_reason() -> None:
    assert all(bool(device.prove.options) != bool(device.prove.impossible) for device in DEVICES)
    assert control_options(DEVICES)
