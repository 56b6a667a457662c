import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.x509.verification import PolicyBuilder, Store, VerificationError

from shop_cli.local.authority import Authority
from shop_cli.local.identities import Identities
from shop_cli.local.workspace import discover
from shop_kit.reflection import contract, full_name

SERVICES = [program.name for program in discover()]


@pytest.fixture(scope="module")
def identities(tmp_path_factory: pytest.TempPathFactory) -> Identities:
    return Identities.issue(tmp_path_factory.mktemp("tls"), SERVICES)


def callers_of(identities: Identities, service: str) -> dict[str, list[str]]:
    """Return the allowed methods by caller."""
    allowed = json.loads(identities.variables(service)["ALLOWED_CALLS"])
    return {caller.removeprefix("spiffe://shop.local/ns/local/sa/"): methods for caller, methods in allowed.items()}


def test_only_their_owner_reads_certificates_and_a_new_start_replaces_them(tmp_path: Path) -> None:
    for _ in range(2):
        before = {path: path.read_bytes() for path in tmp_path.rglob("*.*")}
        Identities.issue(tmp_path, ["cart"])
        files = sorted(tmp_path.rglob("*.*"))
        assert [path.stat().st_mode & 0o777 for path in (*files, *tmp_path.iterdir())] == [0o600] * 6 + [0o700] * 2
        assert [path for path in files if path.read_bytes() == before.get(path)] == []
    authorities = {path.read_bytes() for path in tmp_path.rglob("ca.crt")}
    assert len(authorities) == 1


def test_a_laboratory_alone_may_make_services_fail(tmp_path: Path, identities: Identities) -> None:
    in_lab = callers_of(Identities.issue(tmp_path, ["ad"], lab=True), "ad")
    methods = [f"shop.internal.Failpoints/{name}" for name in ("ListFailpoints", "SetFailpoint")]
    assert (tmp_path / "lab" / "tls.crt").exists()
    assert in_lab == {**callers_of(identities, "ad"), "lab": methods}


def test_the_operator_may_call_everything_else(identities: Identities) -> None:
    allowed = [method for service in SERVICES for method in callers_of(identities, service).get("operator", ())]
    described = map(full_name, contract())
    assert sorted(allowed) == sorted(name for name in described if not name.startswith("shop.internal.Failpoints/"))


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
