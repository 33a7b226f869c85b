"""What a certificate says, as far as it matters here.

Belongs here: from PEM to facts. Never: whether that is good enough (renewal.py).
"""

from dataclasses import dataclass
from datetime import datetime

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from accelshare.install.certificates.making import CLOCK_SKEW, Pair
from accelshare.install.certificates.problems import CertificateError


@dataclass(frozen=True, slots=True)
class Facts:
    """One certificate. `made`: when, by the maker's clock."""

    name: str
    made: datetime
    until: datetime
    names: frozenset[str]


def facts(pem: str) -> Facts:
    certificate = _certificate(pem)
    names: frozenset[str] = frozenset()
    try:
        given = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        addresses = (str(address) for address in given.get_values_for_type(x509.IPAddress))
        names = frozenset((*given.get_values_for_type(x509.DNSName), *addresses))
    except x509.ExtensionNotFound:
        pass
    common = certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    said = str(common[0].value) if common else ""
    return Facts(said, certificate.not_valid_before_utc + CLOCK_SKEW, certificate.not_valid_after_utc, names)


def check(pair: Pair) -> None:
    """Raises if the key is not the certificate's."""
    certificate = _certificate(pair.certificate)
    try:
        key = serialization.load_pem_private_key(pair.key.encode(), password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise CertificateError(f"the key cannot be read: {error}") from error
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise CertificateError("the key is of another kind than those made here (ECDSA)")
    if key.public_key() != certificate.public_key():
        raise CertificateError("the key does not belong to the certificate")


def signed_by(pem: str, authority: str) -> bool:
    """This CA has signed it."""
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
