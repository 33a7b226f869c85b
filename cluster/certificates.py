"""The control plane's own certificate authority and the certificates that it signs. New for each start, valid for a week."""

from __future__ import annotations

import datetime
import ipaddress
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

_VALID: Final = datetime.timedelta(days=7)
_CLOCK_SKEW: Final = datetime.timedelta(minutes=5)
_SERVING_NAMES: Final = ("localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc")
_LOOPBACK: Final = ("127.0.0.1", "::1")


class Authority:
    """Signs serving and client certificates; its own certificate is what clients verify against."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self._directory = directory
        self._clients = 0
        self._key = ec.generate_private_key(ec.SECP256R1())
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "accelshare local cluster")])
        usage = _key_usage(sign_certificates=True)
        self._certificate = (
            _lifetime(x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(self._key.public_key()))
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(usage, critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(self._key.public_key()), critical=False)
            .sign(self._key, hashes.SHA256())
        )
        self.file = directory / "ca.crt"
        self.file.write_bytes(self._certificate.public_bytes(serialization.Encoding.PEM))

    def serving_certificate(self, name: str, *others: str) -> tuple[Path, Path]:
        """Certificate and key of a server on loopback and these other addresses.

        A client's too, because etcd's HTTP gateway calls etcd with it.
        """
        addresses = [x509.IPAddress(ipaddress.ip_address(address)) for address in dict.fromkeys((*_LOOPBACK, *others))]
        names = x509.SubjectAlternativeName([*(x509.DNSName(dns) for dns in _SERVING_NAMES), *addresses])
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        return self._sign(name, subject, [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH], names)

    def client_certificate(self, user: str, groups: Sequence[str] = ()) -> tuple[Path, Path]:
        """Certificate and key of a user: Kubernetes reads the user from CN and each group from an O."""
        organizations = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, group) for group in groups]
        subject = x509.Name([*organizations, x509.NameAttribute(NameOID.COMMON_NAME, user)])
        self._clients += 1  # the same user twice, in other groups, is two certificates
        return self._sign(f"client-{self._clients}-{_file_name(user)}", subject, [ExtendedKeyUsageOID.CLIENT_AUTH], None)

    def _sign(
        self, name: str, subject: x509.Name, uses: Sequence[x509.ObjectIdentifier], names: x509.SubjectAlternativeName | None
    ) -> tuple[Path, Path]:
        key = ec.generate_private_key(ec.SECP256R1())
        builder = (
            _lifetime(
                x509.CertificateBuilder()
                .subject_name(subject)
                .issuer_name(self._certificate.subject)
                .public_key(key.public_key())
            )
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_key_usage(sign_certificates=False), critical=True)
            .add_extension(x509.ExtendedKeyUsage(uses), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()), critical=False)
        )
        if names is not None:
            builder = builder.add_extension(names, critical=False)
        certificate = builder.sign(self._key, hashes.SHA256())
        certificate_file = self._directory / f"{name}.crt"
        certificate_file.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
        return certificate_file, write_key(self._directory / f"{name}.key", key)


def write_key(path: Path, key: ec.EllipticCurvePrivateKey | None = None) -> Path:
    """Write a private key, a new one by default, that only its owner can read."""
    key = key or ec.generate_private_key(ec.SECP256R1())
    path.touch(mode=0o600)
    path.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption()
        )
    )
    return path


def _lifetime(builder: x509.CertificateBuilder) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return builder.serial_number(x509.random_serial_number()).not_valid_before(now - _CLOCK_SKEW).not_valid_after(now + _VALID)


def _key_usage(*, sign_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        key_cert_sign=sign_certificates,
        crl_sign=sign_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _file_name(user: str) -> str:
    return "".join(letter if letter.isalnum() or letter in "-._" else "-" for letter in user)
