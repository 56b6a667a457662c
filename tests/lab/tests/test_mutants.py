import ast

import pytest

from shop_lab.mutants.devices import DEVICES, ROOT, Device

each_device = pytest.mark.parametrize("device", DEVICES, ids=lambda device: device.name)


@each_device
def test_the_removal_of_a_device_applies_to_its_source(device: Device) -> None:
    mutated = device.mutate((ROOT / device.file).read_text())
    if device.file.endswith(".py"):
        compile(mutated, device.file, "exec")


@each_device
def test_the_test_of_a_device_exists(device: Device) -> None:
    path, _, name = device.test_id.partition("::")
    functions = {node.name for node in ast.walk(ast.parse((ROOT / path).read_text())) if hasattr(node, "name")}
    assert not name or name in functions
