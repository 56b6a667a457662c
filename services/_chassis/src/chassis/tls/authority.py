"""A certificate authority that issues the services' certificates. It needs the extra `authority` of this package."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from typing import Self

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, EllipticCurvePrivateKey, generate_private_key
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, load_pem_private_key
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from chassis.tls.callers import SPIFFE_ID

# A peer whose clock is behind by less accepts a new certificate at once.
CLOCK_SKEW = timedelta(minutes=5)


@dataclass(frozen=True)
class Issued:
    """A certificate and its private key in PEM, as in `tls.crt` and `tls.key` of a Secret."""

    certificate: bytes
    key: bytes = field(repr=False)


class Authority:
    """An ECDSA P-256 authority without intermediates; `certificate` and `key` are PEM.

    Raises ValueError if they are no such pair.
    """

    def __init__(self, certificate: bytes, key: bytes) -> None:
        self.certificate, self.key = certificate, key
        loaded, private = x509.load_pem_x509_certificate(certificate), load_pem_private_key(key, None)
        if not isinstance(private, EllipticCurvePrivateKey) or private.public_key() != loaded.public_key():
            raise ValueError("the key does not belong to the certificate, or is of another type")
        self._subject, self._private = loaded.subject, private
        self.expires_at = loaded.not_valid_after_utc

    @classmethod
    def create(cls, name: str, valid: timedelta) -> Self:
        """Create an authority with a new key; the name has 1 to 64 characters."""
        key = generate_private_key(SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        builder = _certificate(subject, subject, key, datetime.now(UTC) + valid, is_authority=True)
        identifier = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
        issued = _sign(builder.add_extension(identifier, critical=False), key, key)
        return cls(issued.certificate, issued.key)

    def issue(self, names: Sequence[str], spiffe_id: str, valid: timedelta, addresses: Sequence[str] = ()) -> Issued:
        """Issue a certificate for a server and client, which ends with the authority's at the latest.

        Args:
            names: DNS names, at least one: gRPC does not verify a server by its URI.
            spiffe_id: the one URI, such as `spiffe://cluster.local/ns/shop/sa/shop-cart`.
            addresses: IP addresses.

        Raises:
            ValueError: a name, the URI or an address is not allowed.
        """
        if not names or not re.match(SPIFFE_ID, spiffe_id):
            raise ValueError("a certificate needs a DNS name and a SPIFFE ID")
        key = generate_private_key(SECP256R1())
        alternatives = [
            *map(x509.DNSName, names),
            x509.UniformResourceIdentifier(spiffe_id),
            *(x509.IPAddress(ip_address(address)) for address in addresses),
        ]
        expires_at = min(datetime.now(UTC) + valid, self.expires_at)
        usages = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
        issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._private.public_key())
        builder = (
            _certificate(x509.Name([]), self._subject, key, expires_at, is_authority=False)
            .add_extension(x509.ExtendedKeyUsage(usages), critical=False)
            # Critical, because the subject is empty.
            .add_extension(x509.SubjectAlternativeName(alternatives), critical=True)
            .add_extension(issuer, critical=False)
        )
        return _sign(builder, self._private, key)


def _certificate(
    subject: x509.Name, issuer: x509.Name, key: EllipticCurvePrivateKey, expires_at: datetime, *, is_authority: bool
) -> x509.CertificateBuilder:
    unused = ("content_commitment", "key_encipherment", "data_encipherment", "key_agreement")
    usage = dict.fromkeys((*unused, "encipher_only", "decipher_only"), False)
    usage |= {"digital_signature": not is_authority, "key_cert_sign": is_authority, "crl_sign": is_authority}
    return (
        x509.CertificateBuilder(issuer, subject, key.public_key(), x509.random_serial_number())
        .not_valid_before(datetime.now(UTC) - CLOCK_SKEW)
        .not_valid_after(expires_at)
        .add_extension(x509.BasicConstraints(is_authority, 0 if is_authority else None), critical=True)
        .add_extension(x509.KeyUsage(**usage), critical=True)
    )


def _sign(builder: x509.CertificateBuilder, signer: EllipticCurvePrivateKey, key: EllipticCurvePrivateKey) -> Issued:
    certificate = builder.sign(signer, SHA256()).public_bytes(Encoding.PEM)
    return Issued(certificate, key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
