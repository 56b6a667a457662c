"""Certificates, good and bad, in folders that are replaced as Kubernetes replaces mounted Secrets."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from uuid import uuid4

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, generate_private_key
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, load_pem_private_key

from shop_cli.local.authority import Authority, Issued

HOUR = timedelta(hours=1)
_FILES = {"crt": "tls.crt", "key": "tls.key", "ca": "ca.crt"}
_LOCAL = (x509.DNSName("localhost"), x509.IPAddress(ip_address("127.0.0.1")))


def new_authority(name: str = "test") -> Authority:
    return Authority.create(name, timedelta(days=1))


def spiffe_id(service: str) -> str:
    return f"spiffe://shop.local/ns/local/sa/{service}"


def issue(authority: Authority, service: str, valid: timedelta = HOUR) -> Issued:
    """Issue a certificate for a local service."""
    return authority.issue(["localhost"], spiffe_id(service), valid, ["127.0.0.1"])


def issue_bad(
    authority: Authority | None,
    *services: str,
    hosts: Sequence[x509.GeneralName] = _LOCAL,
    valid_from: timedelta = -HOUR,
    valid_until: timedelta = HOUR,
) -> Issued:
    """Issue what an authority of ours never does: with several services or none, other hosts, or another time.

    Without an authority the certificate signs itself. Times are relative to the present.
    """
    key, now = generate_private_key(SECP256R1()), datetime.now(UTC)
    own = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "self-signed")])
    signer = load_pem_private_key(authority.key, None) if authority else key
    issuer = x509.load_pem_x509_certificate(authority.certificate).subject if authority else own
    names = [*hosts, *(x509.UniformResourceIdentifier(spiffe_id(service)) for service in services)]
    certificate = (
        x509.CertificateBuilder(issuer, own, key.public_key(), x509.random_serial_number())
        .not_valid_before(now + valid_from)
        .not_valid_after(now + valid_until)
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .sign(signer, SHA256())  # type: ignore[arg-type]
    )
    pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    return Issued(certificate.public_bytes(Encoding.PEM), pem)


def replace(folder: Path, **files: bytes) -> None:
    """Replace files of a folder in one step, as Kubernetes does: `crt`, `key` and `ca`. The others remain."""
    data, link = folder / uuid4().hex, folder / "next"
    data.mkdir(parents=True)
    for short, name in _FILES.items():
        (data / name).write_bytes(files[short] if short in files else (folder / name).read_bytes())
    link.symlink_to(data.name)
    link.rename(folder / "..data")
    for name in _FILES.values():
        if not (folder / name).exists():
            (folder / name).symlink_to(f"..data/{name}")


def renew(folder: Path, authority: Authority, service: str, *trusted: Authority) -> Path:
    """Replace a folder's files by a new certificate, trusting its authority and others. Return the folder."""
    issued = issue(authority, service)
    authorities = b"".join(found.certificate for found in (authority, *trusted))
    replace(folder, crt=issued.certificate, key=issued.key, ca=authorities)
    return folder
