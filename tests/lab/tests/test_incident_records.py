"""The record of an incident: hashes that are published first, a truth for the instructor alone."""

import json
from pathlib import Path

import pytest

from shop_lab.incidents.catalogue import find
from shop_lab.incidents.record import InjectedFault, Load, Plan, Record, RecordMalformed, Times, Truth, read
from shop_lab.incidents.run import NotQuiet


def recorded(folder: Path, *, closed: bool = True) -> tuple[Path, Truth]:
    fault = find("ad-slow")
    plan = Plan(faults=(fault.id,), seconds=(60,), seed=7)
    record = Record(folder, plan, "local")
    injected = InjectedFault(fault=fault, seconds=60, times=Times(requested=1, applied=2))
    load = Load(source="command", rate=2, seed=7)
    truth = Truth(id=record.id, plan=plan, where="local", versions={}, load=load, faults=(injected,))
    record.save(truth)
    if closed:
        record.close(truth)
    return record.folder, truth


def test_a_record_is_read_as_it_was_written(tmp_path: Path) -> None:
    folder, truth = recorded(tmp_path)
    window, found = read(folder)
    assert found == truth
    assert window.ended
    assert window.ended > window.began


def test_investigators_see_neither_the_fault_nor_when_it_began(tmp_path: Path) -> None:
    folder, truth = recorded(tmp_path)
    visible = folder.name + (folder / "window.json").read_text()
    assert [word for word in truth.faults[0].fault.words if word in visible] == []
    assert set(json.loads((folder / "window.json").read_text())) == {
        *("schema_version", "id", "where", "namespace", "began", "ended", "plan_sha256", "truth_sha256")
    }
    assert (folder / "truth.json").stat().st_mode & 0o777 == 0o600


def test_a_run_in_which_nothing_was_started_leaves_no_folder(tmp_path: Path) -> None:
    record = Record(tmp_path, Plan(faults=("ad-slow",), seconds=(60,), seed=7), "local")
    with pytest.raises(NotQuiet), record.begun():
        raise NotQuiet("no customers visit the storefront")
    assert list(tmp_path.iterdir()) == []


def test_the_hash_of_equal_plans_differs() -> None:
    plans = [Plan(faults=("ad-slow",), seconds=(60,), seed=7) for _ in range(2)]
    assert plans[0].digest() != plans[1].digest()


@pytest.mark.parametrize(
    ("old", "new"), [('"requested": 1', '"requested": 3'), ('"seed": 7,\n    "nonce"', '"seed": 8,\n    "nonce"')]
)
def test_a_truth_that_was_changed_is_refused(tmp_path: Path, old: str, new: str) -> None:
    path = recorded(tmp_path)[0] / "truth.json"
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))
    with pytest.raises(RecordMalformed, match=r"is not the one whose hash window\.json has$"):
        read(path.parent)


def test_an_incident_that_has_not_ended_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RecordMalformed, match="has not ended"):
        read(recorded(tmp_path, closed=False)[0])


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("window.json", "{}", "id: Field required"),
        ("truth.json", "[", "Invalid JSON"),
        ("truth.json", None, "No such file"),
    ],
)
def test_a_folder_that_is_no_record_is_refused_in_one_line(
    tmp_path: Path, name: str, text: str | None, message: str
) -> None:
    folder, _ = recorded(tmp_path)
    (folder / name).unlink()
    if text is not None:
        (folder / name).write_text(text)
    with pytest.raises(RecordMalformed) as refused:
        read(folder)
    assert message in str(refused.value)
    assert "\n" not in str(refused.value)
