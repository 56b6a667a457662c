"""The adapter beside base classes with the signatures of SREGym's `Problem` and AIOpsLab's tasks."""

from abc import ABC, abstractmethod
from pathlib import Path
from types import SimpleNamespace

import pytest

from shop_lab.incidents.adapters import ShopFault


class SreGymProblem(ABC):
    def __init__(self, app: SimpleNamespace, namespace: str | None = None) -> None:
        self.namespace = app.namespace if namespace is None else namespace
        self.root_cause: str | None = None

    @abstractmethod
    def inject_fault(self) -> None: ...

    @abstractmethod
    def recover_fault(self) -> None: ...


class AiOpsLabTask:
    def __init__(self, app: SimpleNamespace) -> None:
        self.app = app


@pytest.mark.parametrize("base", [SreGymProblem, AiOpsLabTask])
def test_a_problem_starts_and_stops_its_fault_in_the_namespace_of_its_application(
    base: type, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop, called = tmp_path / "shop", tmp_path / "called"
    shop.write_text(f'#!/bin/sh\necho "$@" >> {called}\n')
    shop.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    problem = type("PaymentLock", (ShopFault, base), {"fault_id": "pg-lock"})(app=SimpleNamespace(namespace="lab"))
    problem.start_workload()
    problem.inject_fault()
    problem.recover_fault()
    assert called.read_text().splitlines() == [
        "faults start pg-lock --for 1h --namespace lab --release shop",
        "faults stop --namespace lab --release shop",
    ]
    assert problem.faulty_service == "payment"
    assert problem.root_cause.startswith("[fault_spec] component=payment; namespace=lab || ")
