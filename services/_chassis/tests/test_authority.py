from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.rsa import generate_private_key
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.verification import PolicyBuilder, Store, VerificationError

from chassis.tls.authority import Authority, Issued

DAY = timedelta(days=1)
SPIFFE_ID = "spiffe://cluster.local/ns/shop/sa/shop-cart"
NAMES = ["shop-cart", "shop-cart.shop.svc"]


@pytest.fixture(scope="module")
def authority() -> Authority:
    return Authority.create("shop", 10 * DAY)


@pytest.fixture(scope="module")
def issued(authority: Authority) -> Issued:
    return authority.issue(NAMES, SPIFFE_ID, DAY, addresses=["127.0.0.1", "::1"])


def verify(authority: Authority, issued: Issued) -> list[x509.Certificate]:
    verifier = PolicyBuilder().store(Store(x509.load_pem_x509_certificates(authority.certificate)))
    subject = x509.DNSName(NAMES[0])
    return verifier.build_server_verifier(subject).verify(x509.load_pem_x509_certificate(issued.certificate), [])


def test_a_certificate_has_its_names_its_addresses_and_one_uri(issued: Issued) -> None:
    certificate = x509.load_pem_x509_certificate(issued.certificate)
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == NAMES
    assert names.get_values_for_type(x509.UniformResourceIdentifier) == [SPIFFE_ID]
    assert names.get_values_for_type(x509.IPAddress) == [ip_address("127.0.0.1"), ip_address("::1")]


def test_a_certificate_is_verified_by_its_authority_alone(authority: Authority, issued: Issued) -> None:
    assert len(verify(authority, issued)) == 2
    with pytest.raises(VerificationError):
        verify(Authority.create("shop", DAY), issued)


def test_a_certificate_that_another_one_issued_is_refused(authority: Authority, issued: Issued) -> None:
    forged = Authority(issued.certificate, issued.key).issue(NAMES, SPIFFE_ID, DAY)
    verifier = PolicyBuilder().store(Store(x509.load_pem_x509_certificates(authority.certificate)))
    certificate, issuer = map(x509.load_pem_x509_certificate, (forged.certificate, issued.certificate))
    with pytest.raises(VerificationError):
        verifier.build_server_verifier(x509.DNSName(NAMES[0])).verify(certificate, [issuer])


def test_a_new_certificate_is_valid_for_a_peer_whose_clock_is_behind(issued: Issued) -> None:
    certificate = x509.load_pem_x509_certificate(issued.certificate)
    assert certificate.not_valid_before_utc < datetime.now(UTC) - timedelta(minutes=4)


def test_a_certificate_ends_with_its_authority_at_the_latest(authority: Authority) -> None:
    certificate = x509.load_pem_x509_certificate(authority.issue(NAMES, SPIFFE_ID, 100 * DAY).certificate)
    assert certificate.not_valid_after_utc == authority.expires_at


@pytest.mark.parametrize(
    ("names", "spiffe_id", "addresses"),
    [
        ([], SPIFFE_ID, []),
        (NAMES, "", []),
        (NAMES, "https://cluster.local/ns/shop/sa/shop-cart", []),
        (NAMES, f"{SPIFFE_ID}\0-of-another", []),  # gRPC's auth_context ends at the NUL
        (NAMES, SPIFFE_ID, ["localhost"]),
        (["bücher.example"], SPIFFE_ID, []),
    ],
)
def test_names_that_no_certificate_may_have_are_refused(
    authority: Authority, names: list[str], spiffe_id: str, addresses: list[str]
) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        authority.issue(names, spiffe_id, DAY, addresses)


def rsa_key() -> bytes:
    key = generate_private_key(65537, 2048)
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


@pytest.mark.parametrize("key", [lambda: Authority.create("shop", DAY).key, rsa_key, lambda: b"garbage"])
def test_a_key_that_is_not_the_certificates_is_refused(authority: Authority, key: Callable[[], bytes]) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        Authority(authority.certificate, key())
