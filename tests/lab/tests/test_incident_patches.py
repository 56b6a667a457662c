"""The faults of the catalogue against today's services: failpoints exist, and patches apply. Runs prove the effects."""

import importlib
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ad_service.domain import Ad
from checkout_service.failpoints import FAILPOINTS
from shop_kit.reflection import contract, full_name
from shop_lab.incidents.catalogue import FailpointInjection, PatchInjection, load_all
from shop_lab.incidents.mechanisms import FINDER, FINDER_NAME, module_of, patched

FAULTS = load_all()
INJECTIONS = [(fault.id, injection) for fault in FAULTS.values() for injection in fault.injections]


def test_failpoints_are_methods_or_places_that_exist() -> None:
    failing = [injection for _, injection in INJECTIONS if isinstance(injection, FailpointInjection)]
    names = {injection.specification.partition("=")[0] for injection in failing}
    assert names <= {*map(full_name, contract()), *FAILPOINTS}


Modules = Callable[[str], tuple[Any, Any]]
"""Returns the module that a fault patches, and the patched one."""


@pytest.fixture
def modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Modules:
    """Patched modules beside the file that a pod's Python imports as `sitecustomize`."""
    monkeypatch.setattr(sys, "meta_path", [*sys.meta_path])
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "sitecustomize", raising=False)
    (tmp_path / FINDER_NAME).write_text(FINDER.read_text())
    importlib.import_module("sitecustomize")

    def loaded(fault: str) -> tuple[Any, Any]:
        (injection,) = [one for one in FAULTS[fault].injections if isinstance(one, PatchInjection)]
        name = module_of(injection)
        original, (package, _, module) = importlib.import_module(name), name.rpartition(".")
        (tmp_path / f"{name}.py").write_text(patched(injection))
        monkeypatch.setattr(sys.modules[package], module, original)
        monkeypatch.delitem(sys.modules, name)
        return original, importlib.import_module(name)

    return loaded


def test_every_patch_applies(modules: Modules) -> None:
    for fault, injection in INJECTIONS:
        if isinstance(injection, PatchInjection):
            assert modules(fault)


def test_ads_of_gifts_raise(modules: Modules) -> None:
    ads = [Ad("/", "house"), Ad("/", "gift", ("gifts",)), Ad("/", "hat", ("clothing",))]
    original, changed = (module.Inventory(ads) for module in modules("ad-category"))
    assert original.select(["gifts"]) == [ads[1]]
    assert changed.select(["clothing"]) == [ads[2]]
    with pytest.raises(KeyError):
        changed.select(["gifts"])
