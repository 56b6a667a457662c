from pathlib import Path

import pytest

from shop_cli.control_room.customers import Customers, NoCustomers


async def test_a_shop_without_a_storefront_has_no_customers(tmp_path: Path) -> None:
    with pytest.raises(NoCustomers):
        await Customers(None, tmp_path / "customers.log").set_rate(1)


async def test_customers_that_are_off_can_be_stopped(tmp_path: Path) -> None:
    customers = Customers(None, tmp_path / "customers.log")
    await customers.stop()
    assert customers.rate == 0
