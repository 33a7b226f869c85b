"""One X.509 certificate: create a CA, sign a leaf, read the fields that matter here. Keys are ECDSA on P-256.

Belongs here: from values to PEM and back. Never: when a certificate is due (`renewal.py`), where it is stored (`secrets.py`).
"""

import ipaddress
from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final, Literal

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from accelshare.install.errors import CertificateError

# Clocks of a cluster's machines differ a little, and a certificate must not start in the future of any of them.
CLOCK_SKEW: Final = timedelta(minutes=5)
CertificateRole = Literal["server", "client"]
_USES: Final = {"server": ExtendedKeyUsageOID.SERVER_AUTH, "client": ExtendedKeyUsageOID.CLIENT_AUTH}


@dataclass(frozen=True, slots=True)
class Pair:
    """A certificate and its key, both as PEM."""

    certificate: str
    key: str

    def __repr__(self) -> str:
        return "Pair(…)"  # keep keys out of logs


@dataclass(frozen=True, slots=True)
class Facts:
    """The fields of one certificate that matter here. `made` is the time of creation by the issuer's clock."""

    name: str
    made: datetime
    until: datetime
    names: frozenset[str]


def authority(name: str, *, now: datetime, life: timedelta) -> Pair:
    """A self-signed CA that may sign leaf certificates only."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = _name(name)
    builder = (
        _builder(subject, key, now=now, until=now + life)
        .issuer_name(subject)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs_certificates=True), critical=True)
    )
    return _pair(builder.sign(key, hashes.SHA256()), key)


def leaf(by: Pair, role: CertificateRole, name: str, *, names: Collection[str] = (), now: datetime, life: timedelta) -> Pair:
    """A leaf for one role, signed by this CA and valid no longer than it. `names`: DNS names and addresses of a server."""
    issuer = x509.load_pem_x509_certificate(by.certificate.encode())
    issuer_key = serialization.load_pem_private_key(by.key.encode(), password=None)
    assert isinstance(issuer_key, ec.EllipticCurvePrivateKey), "check() refuses CAs with other keys"
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


def facts(pem: str) -> Facts:
    """Read one certificate. Raises CertificateError."""
    certificate = _certificate(pem)
    names: frozenset[str] = frozenset()
    try:
        alternative = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        addresses = (str(address) for address in alternative.get_values_for_type(x509.IPAddress))
        names = frozenset((*alternative.get_values_for_type(x509.DNSName), *addresses))
    except x509.ExtensionNotFound:
        pass
    common = certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    name = str(common[0].value) if common else ""
    return Facts(name, certificate.not_valid_before_utc + CLOCK_SKEW, certificate.not_valid_after_utc, names)


def check(pair: Pair) -> None:
    """Raises CertificateError if the key does not belong to the certificate."""
    certificate = _certificate(pair.certificate)
    try:
        key = serialization.load_pem_private_key(pair.key.encode(), password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise CertificateError(f"the key cannot be read: {error}") from error
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise CertificateError("the key is not ECDSA, the only kind that accelshare creates")
    if key.public_key() != certificate.public_key():
        raise CertificateError("the key does not belong to the certificate")


def signed_by(pem: str, authority: str) -> bool:
    """Whether this CA signed the certificate."""
    try:
        _certificate(pem).verify_directly_issued_by(_certificate(authority))
    except (ValueError, TypeError, InvalidSignature):
        return False
    return True


def _certificate(pem: str) -> x509.Certificate:
    try:
        return x509.load_pem_x509_certificate(pem.encode())
    except ValueError as error:
        raise CertificateError(f"the certificate cannot be read: {error}") from error


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
