"""A certificate authority for local shops. In a cluster, cert-manager or Helm issues certificates."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from typing import Self, cast

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, EllipticCurvePrivateKey, generate_private_key
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, load_pem_private_key
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

# Backdate new certificates by this much, so that peers whose clocks are behind accept them.
CLOCK_SKEW = timedelta(minutes=5)
# RFC 5280 requires a critical SubjectAlternativeName in certificates with an empty subject, like ours.
_CRITICAL = (x509.BasicConstraints, x509.KeyUsage, x509.SubjectAlternativeName)
_UNUSED = ("digital_signature", "content_commitment", "key_encipherment", "data_encipherment", "key_agreement")


@dataclass(frozen=True)
class Issued:
    """A certificate and its private key in PEM format, like `tls.crt` and `tls.key` in a Kubernetes Secret."""

    certificate: bytes
    key: bytes = field(repr=False)


@dataclass(frozen=True)
class Authority(Issued):
    """A certificate authority with an ECDSA P-256 key and no intermediate certificates."""

    @classmethod
    def create(cls, name: str, valid: timedelta) -> Self:
        """Create an authority with a new key. `name` can have up to 64 characters."""
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        unused = dict.fromkeys((*_UNUSED, "encipher_only", "decipher_only"), False)
        usage = x509.KeyUsage(key_cert_sign=True, crl_sign=True, **unused)
        return cls(*_new_certificate(subject, valid, [x509.BasicConstraints(ca=True, path_length=0), usage]))

    def issue(self, names: Sequence[str], spiffe_id: str, valid: timedelta, addresses: Sequence[str] = ()) -> Issued:
        """Issue a certificate for both server and client authentication.

        Args:
            names: at least one DNS name, because gRPC does not verify a server by its SPIFFE URI.
            spiffe_id: a URI such as `spiffe://cluster.local/ns/shop/sa/shop-cart`.
            valid: how long the certificate is valid, starting now.
            addresses: the server's IP addresses.
        """
        alternatives = [
            *map(x509.DNSName, names),
            x509.UniformResourceIdentifier(spiffe_id),
            *(x509.IPAddress(ip_address(address)) for address in addresses),
        ]
        extensions = [
            x509.BasicConstraints(ca=False, path_length=None),
            x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]),
            x509.SubjectAlternativeName(alternatives),
        ]
        return Issued(*_new_certificate(x509.Name([]), valid, extensions, self))


def _new_certificate(
    subject: x509.Name, valid: timedelta, extensions: Sequence[x509.ExtensionType], authority: Authority | None = None
) -> tuple[bytes, bytes]:
    """Return a certificate for a new key, and the key, in PEM format. Without an authority, the key signs itself."""
    now, key = datetime.now(UTC), generate_private_key(SECP256R1())
    issuer, signer = subject, key
    if authority is not None:
        issuer = x509.load_pem_x509_certificate(authority.certificate).subject
        signer = cast("EllipticCurvePrivateKey", load_pem_private_key(authority.key, None))
    builder = x509.CertificateBuilder(issuer, subject, key.public_key(), x509.random_serial_number())
    builder = builder.not_valid_before(now - CLOCK_SKEW).not_valid_after(now + valid)
    key_ids = (
        x509.SubjectKeyIdentifier.from_public_key(key.public_key()),
        x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()),
    )
    for extension in (*extensions, *key_ids):
        builder = builder.add_extension(extension, critical=isinstance(extension, _CRITICAL))
    certificate = builder.sign(signer, SHA256()).public_bytes(Encoding.PEM)
    return certificate, key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
