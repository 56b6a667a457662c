import uuid

import pytest

from chassis.values.uuids import NameUuids, format_uuid


@pytest.mark.parametrize("name", ["", "order:1", "käse", "x" * 300, *map(str, range(50))])
def test_a_name_has_the_uuid_of_the_standard_library(name: str) -> None:
    assert NameUuids(uuid.NAMESPACE_DNS).of(name) == str(uuid.uuid5(uuid.NAMESPACE_DNS, name))


def test_names_of_one_namespace_do_not_affect_each_other() -> None:
    names = NameUuids(uuid.NAMESPACE_DNS)
    assert names.of("one") == names.of("one") != names.of("two")
    assert names.of("one") != NameUuids(uuid.NAMESPACE_URL).of("one")


@pytest.mark.parametrize("byte", range(256))
def test_a_digest_is_formatted_as_a_uuid(byte: int) -> None:
    digest = bytes([byte]) * 32
    parsed = uuid.UUID(format_uuid(digest, version=8))
    assert (parsed.version, parsed.variant, str(parsed)) == (8, uuid.RFC_4122, format_uuid(digest, version=8))
    version_and_variant = 0xF << 76 | 3 << 62
    assert parsed.int & ~version_and_variant == int.from_bytes(digest[:16]) & ~version_and_variant
