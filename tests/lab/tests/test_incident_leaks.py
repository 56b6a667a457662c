"""What investigators read contains no word of a fault; a word that everyone uses is none of a fault's."""

from pathlib import Path

import pytest
from typing_extensions import override

from shop_lab.incidents.catalogue import Labels, find
from shop_lab.incidents.cluster import Cluster
from shop_lab.incidents.leaks import find_leaks, texts_in, texts_of
from shop_lab.incidents.targets import CannotAct

FAULT = find("ad-slow").model_copy(
    update={"labels": Labels(openrca="network delay", itbench={"category": "Network", "mechanism": "Delay"})}
)


@pytest.mark.parametrize(
    ("name", "text", "word"),
    [
        ("pod.yaml", "name: shop-ad-slow-1", "ad-slow"),
        ("ad-slow.json", "", "ad-slow"),
        ("log", f"... {FAULT.title.lower()} ...", FAULT.title),
        ("log", 'reason: "Network Delay"', "network delay"),
        ("log", '{"mechanism": "delay"}', "Delay"),
    ],
)
def test_a_word_of_a_fault_is_found(name: str, text: str, word: str) -> None:
    assert f"{name} contains {word!r}" in list(find_leaks({name: text}, [FAULT]))


@pytest.mark.parametrize("text", ["retry after a delay of 2 s", '{"retry_delay": 1}', "GetAds took 0.5 s"])
def test_a_common_word_is_no_leak(text: str) -> None:
    assert list(find_leaks({"log": text}, [FAULT])) == []


def test_all_files_of_a_record_are_searched_but_the_truth(tmp_path: Path) -> None:
    (tmp_path / "telemetry").mkdir()
    for name in ("telemetry/logs.csv", "window.json", "truth.json"):
        (tmp_path / name).write_text("x")
    assert set(texts_in(tmp_path)) == {"telemetry/logs.csv", "window.json"}


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
