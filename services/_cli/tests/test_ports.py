import os
import re
import socket
import struct
from pathlib import Path

import pytest

from shop_cli.control_room.running import running
from shop_cli.local.ports import HOST, PortInUse, kept_from_connections, require_free, reserved


def test_reserved_ports_differ_from_each_other_and_from_other_reservations() -> None:
    with reserved(20) as first, reserved(20) as second:
        assert len({*first, *second}) == 40


def test_a_reserved_port_can_be_bound_and_reserved_again_afterwards() -> None:
    with reserved(1) as (port,), socket.socket() as bound:
        bound.bind((HOST, port))
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as lock:
        lock.bind((HOST, port))


@pytest.mark.skipif(not re.match(r"([7-9]|6\.[3-9]|6\.\d\d)", os.uname().release), reason="lacks IP_LOCAL_PORT_RANGE")
def test_no_outgoing_connection_gets_a_port_on_which_a_service_will_listen() -> None:
    with socket.create_server((HOST, 0)) as service:
        port = service.getsockname()[1]  # in the range for outgoing connections
    with kept_from_connections([port]), socket.create_server((HOST, 0)) as peer, socket.socket() as outgoing:
        outgoing.setsockopt(socket.IPPROTO_IP, 51, struct.pack("I", port | port << 16))
        with pytest.raises(OSError, match="assign requested address"):
            outgoing.connect(peer.getsockname())
        socket.create_server((HOST, port)).close()


def test_a_port_in_use_is_refused_with_its_service_and_the_options_that_choose_others() -> None:
    with socket.create_server((HOST, 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(
            PortInUse, match=f"cart: port {port} is in use.*bin/shop up --port-offset 11000.*--any-ports"
        ):
            require_free(port, "cart")


@pytest.mark.skipif(not socket.has_dualstack_ipv6(), reason="IPv6 is off")
def test_a_port_that_only_ipv6_uses_is_in_use_because_localhost_may_mean_it() -> None:
    with socket.create_server(("::1", 0), family=socket.AF_INET6) as taken, pytest.raises(PortInUse):
        require_free(taken.getsockname()[1], "storefront")


@pytest.mark.parametrize(("name", "usual"), [("cart", 50_051), ("cart-internal", 11_051), ("control-room", 8090)])
async def test_nothing_is_started_while_a_port_of_any_kind_is_in_use(tmp_path: Path, name: str, usual: int) -> None:
    offset = 11_300  # outgoing connections never get these ports
    with socket.create_server((HOST, usual + offset)), pytest.raises(PortInUse, match=f"^{name}: "):
        async with running(tmp_path, offset):
            pass
