import pytest

from chassis.values.email_addresses import require_email_address
from shop_kit.failing import rejecting

LABEL, LOCAL = "a" * 63, "a" * 64
LONGEST = f"{LOCAL}@{LABEL}.{LABEL}.{'a' * 61}"


PLAIN = ["a@b", "jane.doe+shop@mail.example.com", "o'neil@example.com", "a@1-b.example", LONGEST]


@pytest.mark.parametrize(
    ("address", "encoded"),
    [
        *zip(PLAIN, PLAIN, strict=True),
        ("jane@münchen.example", "jane@xn--mnchen-3ya.example"),
        ("jane@MÜNCHEN.example", "jane@xn--mnchen-3ya.example"),
        ("jane@straße.example", "jane@xn--strae-oqa.example"),
        ("jane@例え.テスト", "jane@xn--r8jz45g.xn--zckzah"),
    ],
)
def test_a_plain_address_is_accepted_and_an_international_domain_is_encoded(address: str, encoded: str) -> None:
    assert require_email_address(address, "email") == encoded


REJECTED = {
    "no address": ["", "jane", "@example.com", "jane@", "jane@@example.com"],
    "a dot too much": [".jane@example.com", "jane.@example.com", "jane..doe@example.com", "jane@example..com"],
    "no domain of the DNS": ["jane@example.com.", "jane@-example.com", "jane@example-.com", "jane@exam_ple.com"],
    "too long": [f"a{LOCAL}@example.com", f"jane@a{LABEL}.com", f"a{LONGEST}", f"{LONGEST}a"],
    "no international domain": ["jane@" + "ü" * 70 + ".example", "jane@-ü.example", "jane@ü,b.example"],
    "several, or a name": ["jane@example.com,john@example.com", "Jane <jane@example.com>", '"jane"@example.com'],
    "other characters": ["jäne@example.com", "jane@example.com\n", "jane@example.com\u2028"],
}


@pytest.mark.parametrize("address", [address for addresses in REJECTED.values() for address in addresses])
def test_anything_but_one_plain_address_is_rejected(address: str) -> None:
    with rejecting("email") as refused:
        require_email_address(address, "email")
    assert not address or address not in refused.value.message
