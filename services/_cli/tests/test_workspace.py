from pathlib import Path

import pytest

from chassis.errors import FailedPrecondition, NotFound
from chassis.settings import MAX_PORT
from shop_cli.control_room.running import PORT as CONTROL_ROOM
from shop_cli.local.workspace import (
    MAX_PORT_OFFSET,
    PORT_STEP,
    Program,
    default_ports,
    discover,
    discover_services,
    find,
)

PYPROJECT = """
[tool.hatch.build.targets.wheel]
packages = ["src/{package}"]
[tool.shop]
{settings}
"""
FOUND = {
    "port = 1": Program("gift-cards", "gift_cards_service", 1, "grpc"),
    "port = 1\ninternal-port = 2": Program("gift-cards", "gift_cards_service", 1, "grpc", internal_port=2),
    'port = 1\nsecrets = ["KEY"]': Program("gift-cards", "gift_cards_service", 1, "grpc", secrets=("KEY",)),
    'port = 1\nprotocol = "http"': Program("gift-cards", "gift_cards_service", 1, "http"),
    "": None,
}


def add_package(folder: Path, settings: str) -> None:
    folder.mkdir(parents=True)
    (folder / "pyproject.toml").write_text(PYPROJECT.format(package="gift_cards_service", settings=settings))


@pytest.mark.parametrize("settings", FOUND)
@pytest.mark.parametrize("folder", ["gift-cards", "services/gift-cards"])
def test_a_package_with_a_port_is_a_program(tmp_path: Path, folder: str, settings: str) -> None:
    add_package(tmp_path / folder, settings)
    found = [program for program in [FOUND[settings]] if program is not None]
    assert discover(tmp_path) == found
    assert discover_services(tmp_path) == [program for program in found if program.protocol == "grpc"]


def test_another_protocol_is_refused_with_the_file_that_names_it(tmp_path: Path) -> None:
    add_package(tmp_path / "services" / "window", 'port = 1\nprotocol = "https"')
    with pytest.raises(FailedPrecondition, match=r"window/pyproject.toml: protocol must be grpc or http, not 'https'"):
        discover(tmp_path)


def test_every_default_port_can_be_raised_by_the_largest_offset() -> None:
    assert MAX_PORT - PORT_STEP < max(local_ports(MAX_PORT_OFFSET)) <= MAX_PORT


def test_shops_with_different_offsets_share_no_port() -> None:
    ports = [port for offset in range(0, MAX_PORT_OFFSET + 1, PORT_STEP) for port in local_ports(offset)]
    assert len(set(ports)) == len(ports)


def test_with_the_proposed_offset_no_outgoing_connection_can_take_a_port() -> None:
    given_by_linux = range(32_768, 61_000)
    assert [port for port in local_ports(11_000) if port in given_by_linux] == []


def local_ports(offset: int) -> list[int]:
    """Return all ports that a shop with this offset uses."""
    return [port + offset for port in (*default_ports(discover()).values(), CONTROL_ROOM)]


def test_an_unknown_name_is_refused_with_the_known_ones() -> None:
    with pytest.raises(NotFound, match=r"unknown service 'carts': expected one of .*cart.*checkout"):
        find(discover(), "carts")


def test_documented_services_have_their_documented_ports() -> None:
    documented = {
        "cart": 50051,
        "recommendation": 50052,
        "product-catalog": 50053,
        "shipping": 50054,
        "currency": 50055,
        "payment": 50056,
        "email": 50057,
        "checkout": 50058,
        "ad": 50059,
        "employee-api": 8000,
    }
    assert default_ports(discover()).items() >= {**documented, "checkout-internal": 11058}.items()
