"""New certificates: a CA for itself, and leaves that it signs. Keys are ECDSA on P-256.

Belongs here: what stands in a certificate. Never: when one is due, where it is kept.
"""

import ipaddress
from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final, Literal

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

# Clocks of a cluster's machines differ a little, and a certificate must not come from anybody's future.
CLOCK_SKEW: Final = timedelta(minutes=5)
Role = Literal["server", "client"]
_USES: Final = {"server": ExtendedKeyUsageOID.SERVER_AUTH, "client": ExtendedKeyUsageOID.CLIENT_AUTH}


@dataclass(frozen=True, slots=True)
class Pair:
    """A certificate and its key, both as PEM."""

    certificate: str
    key: str

    def __repr__(self) -> str:
        return "Pair(…)"  # a key must not end up in a log


def authority(name: str, *, now: datetime, life: timedelta) -> Pair:
    """A CA that signs itself and, below it, leaves only."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = _name(name)
    builder = (
        _builder(subject, key, now=now, until=now + life)
        .issuer_name(subject)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs_certificates=True), critical=True)
    )
    return _pair(builder.sign(key, hashes.SHA256()), key)


def leaf(by: Pair, role: Role, name: str, *, names: Collection[str] = (), now: datetime, life: timedelta) -> Pair:
    """A certificate for one role, signed by this CA, which it does not outlive. `names`: DNS names and addresses of a server."""
    issuer = x509.load_pem_x509_certificate(by.certificate.encode())
    issuer_key = serialization.load_pem_private_key(by.key.encode(), password=None)
    assert isinstance(issuer_key, ec.EllipticCurvePrivateKey), "CAs of ours have such keys; reading.py refuses others"
    key = ec.generate_private_key(ec.SECP256R1())
    builder = (
        _builder(_name(name), key, now=now, until=min(now + life, issuer.not_valid_after_utc))
        .issuer_name(issuer.subject)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([_USES[role]]), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer_key.public_key()), critical=False)
    )
    if names:
        builder = builder.add_extension(x509.SubjectAlternativeName([_general(each) for each in sorted(names)]), critical=False)
    return _pair(builder.sign(issuer_key, hashes.SHA256()), key)


def _builder(subject: x509.Name, key: ec.EllipticCurvePrivateKey, *, now: datetime, until: datetime) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - CLOCK_SKEW)
        .not_valid_after(until)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _general(text: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(text))
    except ValueError:
        return x509.DNSName(text)


def _pair(certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> Pair:
    return Pair(
        certificate.public_bytes(serialization.Encoding.PEM).decode(),
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()).decode(),
    )
