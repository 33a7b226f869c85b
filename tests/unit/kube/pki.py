"""A certificate authority for one test."""

import datetime
import ipaddress
import ssl
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

_START = datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC)
_END = datetime.datetime(2090, 1, 1, tzinfo=datetime.UTC)


@dataclass(frozen=True)
class Pair:
    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey

    @property
    def chain_pem(self) -> bytes:
        return self.certificate.public_bytes(serialization.Encoding.PEM)

    @property
    def key_pem(self) -> bytes:
        return self.locked(None)

    def locked(self, password: bytes | None) -> bytes:
        lock = serialization.BestAvailableEncryption(password) if password else serialization.NoEncryption()
        return self.key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, lock)


class Authority:
    """Signs servers and clients. `under` makes it an intermediate one."""

    def __init__(self, name: str = "test-ca", *, under: "Authority | None" = None) -> None:
        self.pair: Pair = _issue(name, under.pair if under else None, is_ca=True)

    @property
    def pem(self) -> bytes:
        return self.pair.chain_pem

    def issue(self, name: str, *hosts: str) -> Pair:
        return _issue(name, self.pair, hosts=hosts)

    def server(self, folder: Path, *hosts: str, clients: "Authority | None" = None) -> ssl.SSLContext:
        """The server's side. With `clients`, it requires a certificate that they signed."""
        pair = self.issue("server", *hosts)
        file = folder / f"server-{pair.certificate.serial_number}.pem"
        file.write_bytes(pair.chain_pem + pair.key_pem)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(file)
        if clients is not None:
            context.verify_mode = ssl.CERT_REQUIRED
            context.load_verify_locations(cadata=clients.pem.decode())
        return context


def _issue(name: str, by: Pair | None, *, hosts: tuple[str, ...] = (), is_ca: bool = False) -> Pair:
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(by.certificate.subject if by else subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(_START)
        .not_valid_after(_END)
        .add_extension(x509.BasicConstraints(ca=is_ca, path_length=None), critical=True)
    )
    if hosts:
        builder = builder.add_extension(x509.SubjectAlternativeName([_host(host) for host in hosts]), critical=False)
    return Pair(builder.sign(by.key if by else key, hashes.SHA256()), key)


def _host(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)
