import socket

import pytest

from shop_cli.local.ports import HOST, PortInUse, require_free, reserved


def test_reserved_ports_differ_from_each_other_and_from_other_reservations() -> None:
    with reserved(20) as mine, reserved(20) as theirs:
        assert len({*mine, *theirs}) == 40


def test_a_reserved_port_can_be_bound() -> None:
    with reserved(1) as (port,), socket.socket() as bound:
        bound.bind((HOST, port))


def test_a_port_that_something_listens_on_is_refused_by_number_and_name() -> None:
    with socket.socket() as taken:
        taken.bind((HOST, 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(PortInUse, match=f"cart: port {port} is in use"):
            require_free(port, "cart")
