from datetime import UTC, datetime, timedelta

import pytest
from cryptography import x509
from cryptography.x509.verification import PolicyBuilder, Store, VerificationError

from shop_cli.local.authority import Authority

DAY = timedelta(days=1)
SPIFFE_ID = "spiffe://shop.local/ns/local/sa/cart"
AUTHORITY = Authority.create("shop", 10 * DAY)
ISSUED = AUTHORITY.issue(["shop-cart"], SPIFFE_ID, DAY)


def test_a_certificate_that_another_one_issued_is_refused() -> None:
    verifier = PolicyBuilder().store(Store(x509.load_pem_x509_certificates(AUTHORITY.certificate)))
    by_name = verifier.build_server_verifier(x509.DNSName("shop-cart"))
    certificate = x509.load_pem_x509_certificate(ISSUED.certificate)
    assert len(by_name.verify(certificate, [])) == 2
    forged = Authority(ISSUED.certificate, ISSUED.key).issue(["shop-cart"], SPIFFE_ID, DAY)
    with pytest.raises(VerificationError):
        by_name.verify(x509.load_pem_x509_certificate(forged.certificate), [certificate])


def test_a_new_certificate_is_valid_for_a_peer_whose_clock_is_behind() -> None:
    certificate = x509.load_pem_x509_certificate(ISSUED.certificate)
    assert certificate.not_valid_before_utc < datetime.now(UTC) - timedelta(minutes=4)
