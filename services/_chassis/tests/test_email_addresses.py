import pytest

from chassis.errors import InvalidArgument
from chassis.values.email_addresses import require_email_address

LABEL, LOCAL = "a" * 63, "a" * 64
LONGEST = f"{LOCAL}@{LABEL}.{LABEL}.{'a' * 61}"


@pytest.mark.parametrize(
    "address", ["a@b", "jane.doe+shop@mail.example.com", "o'neil@example.com", "a@1-b.example", LONGEST]
)
def test_a_plain_address_is_accepted(address: str) -> None:
    assert require_email_address(address, "email") == address


@pytest.mark.parametrize(
    ("address", "encoded"),
    [
        ("jane@münchen.example", "jane@xn--mnchen-3ya.example"),
        ("jane@MÜNCHEN.example", "jane@xn--mnchen-3ya.example"),
        ("jane@straße.example", "jane@xn--strae-oqa.example"),
        ("jane@例え.テスト", "jane@xn--r8jz45g.xn--zckzah"),
    ],
)
def test_an_international_domain_is_encoded(address: str, encoded: str) -> None:
    assert require_email_address(address, "email") == encoded


@pytest.mark.parametrize(
    "address",
    [
        "",
        "jane",
        "@example.com",
        "jane@",
        "jane@@example.com",
        ".jane@example.com",
        "jane.@example.com",
        "jane..doe@example.com",
        "jane@example..com",
        "jane@example.com.",
        "jane@-example.com",
        "jane@example-.com",
        "jane@exam_ple.com",
        f"a{LOCAL}@example.com",
        f"jane@a{LABEL}.com",
        f"a{LONGEST}",
        f"{LONGEST}a",
        "jane@" + "ü" * 70 + ".example",
        "jane@-ü.example",
        "jane@ü,b.example",
        "jane@example.com\n",
        "jane@example.com,john@example.com",
        "Jane <jane@example.com>",
        '"jane"@example.com',
        "jäne@example.com",
        "jane@example.com\u2028",
        "4111-1111-1111-1111@example.com",
    ],
)
def test_anything_but_one_plain_address_is_rejected(address: str) -> None:
    with pytest.raises(InvalidArgument) as refused:
        require_email_address(address, "email")
    assert refused.value.violations[0].field == "email"
    assert not address or address not in refused.value.message
