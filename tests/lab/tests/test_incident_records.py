"""The record of an incident: hashes that are published first, a truth for the instructor alone, no word in the rest."""

import json
from pathlib import Path

import pytest
from typing_extensions import override

from shop_lab.incidents.catalogue import Labels, find
from shop_lab.incidents.cluster import Cluster
from shop_lab.incidents.leaks import find_leaks, texts_in, texts_of
from shop_lab.incidents.record import InjectedFault, Plan, Record, RecordMalformed, Times, Truth, read
from shop_lab.incidents.run import NotQuiet
from shop_lab.incidents.targets import CannotAct

FAULT = find("ad-slow").model_copy(
    update={"labels": Labels(openrca="network delay", itbench={"category": "Network", "mechanism": "Delay"})}
)


def begun(folder: Path) -> Record:
    return Record(folder, Plan(faults=(FAULT.id,), seconds=(60,)), "shop", {})


def recorded(folder: Path, *, closed: bool = True) -> tuple[Path, Truth]:
    record = begun(folder)
    record.truth.faults.append(InjectedFault(fault=FAULT, seconds=60, times=Times(requested=1, applied=2)))
    record.save()
    if closed:
        record.close()
    return record.folder, record.truth


def test_investigators_see_neither_the_fault_nor_when_it_began(tmp_path: Path) -> None:
    folder, truth = recorded(tmp_path)
    window, found = read(folder)
    assert found == truth
    assert window.ended
    assert window.ended > window.began
    assert list(find_leaks(texts_in(tmp_path), FAULT)) == []
    assert set(json.loads((folder / "window.json").read_text())) == {
        *("schema_version", "id", "namespace", "began", "ended", "plan_sha256", "truth_sha256")
    }
    assert (folder / "truth.json").stat().st_mode & 0o777 == 0o600


def test_a_run_in_which_nothing_was_started_leaves_no_folder(tmp_path: Path) -> None:
    with pytest.raises(NotQuiet), begun(tmp_path).begun():
        raise NotQuiet("no customers visit the storefront")
    assert list(tmp_path.iterdir()) == []


def test_the_hash_of_equal_plans_differs() -> None:
    plans = [Plan(faults=("ad-slow",), seconds=(60,), seed=7) for _ in range(2)]
    assert plans[0].digest() != plans[1].digest()


def test_a_truth_that_was_changed_or_is_of_another_plan_is_refused(tmp_path: Path) -> None:
    refused = r"is not the one whose hash window\.json has$"
    folder, truth = recorded(tmp_path)
    path = folder / "truth.json"
    path.write_text(path.read_text().replace('"requested": 1', '"requested": 3'))
    with pytest.raises(RecordMalformed, match=refused):
        read(folder)
    other = begun(tmp_path)
    other.truth = truth
    other.close()
    with pytest.raises(RecordMalformed, match=refused):
        read(other.folder)


def test_an_incident_that_has_not_ended_or_is_no_record_is_refused_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(RecordMalformed, match="has not ended"):
        read(recorded(tmp_path, closed=False)[0])
    with pytest.raises(RecordMalformed, match=r"^[^\n]*: No such file[^\n]*$"):
        read(tmp_path / "none")
    folder, _ = recorded(tmp_path)
    (folder / "window.json").write_text("{}")
    with pytest.raises(RecordMalformed, match=r"^[^\n]*: id: Field required$"):
        read(folder)


# ---------------------------------------------------------------- words


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("pod.yaml", "name: shop-ad-slow-1", ["ad-slow"]),
        ("ad-slow.json", "", ["ad-slow"]),
        ("log", f"... {FAULT.title.lower()} ...", [FAULT.title]),
        ("log", 'reason: "Network Delay"', ["network delay"]),
        ("log", '{"mechanism": "delay"}', ["Delay"]),
        ("log", 'retry after a delay of 2 s: {"retry_delay": 1}', []),
    ],
)
def test_a_word_of_a_fault_is_found_but_no_word_that_everyone_uses(name: str, text: str, words: list[str]) -> None:
    assert list(find_leaks({name: text}, FAULT)) == [f"{name} contains {word!r}" for word in words]


class FakeCluster(Cluster):
    """A cluster with two pods, whose kubectl prints what it is called with."""

    @override
    def kubectl(self, *arguments: str, stdin: str | None = None) -> str:
        if arguments[:2] == ("logs", "pod/a"):
            raise CannotAct("kubectl logs: the container is waiting to start")
        return "pod/a\npod/b\n" if arguments == ("get", "pods", "--output=name") else " ".join(arguments)


def test_objects_and_logs_are_searched_but_no_contents_of_secrets() -> None:
    found = texts_of(FakeCluster("shop-lab", "shop"))
    assert (found["configmaps"], found["secrets"]) == ("get configmaps --output=yaml", "get secrets --output=name")
    assert {name for name in found if "/" in name} == {"pod/b"}  # the other one has no log
    assert found["pod/b"].startswith("logs pod/b ")
