"""The API server listens where it is told to, with a certificate for that address."""

import ipaddress
from pathlib import Path

from cryptography import x509

from cluster import components
from cluster.certificates import Authority


def test_the_api_server_has_its_address_and_asks_kubelets_by_their_own() -> None:
    file = Path("f")
    pki = components.Pki(file, (file, file), (file, file), (file, file), (Path("kubelet.crt"), Path("kubelet.key")), file)
    command = components.api_server(file, "10.97.0.1", 6443, "https://127.0.0.1:2379", file, pki, ["--more"])
    assert {"--bind-address=10.97.0.1", "--advertise-address=10.97.0.1", "--secure-port=6443", "--more"} <= set(command)
    assert {"--kubelet-client-certificate=kubelet.crt", "--kubelet-client-key=kubelet.key"} <= set(command)
    assert "--kubelet-preferred-address-types=InternalIP" in command


def test_a_serving_certificate_names_loopback_and_each_other_address_once(tmp_path: Path) -> None:
    certificate, _ = Authority(tmp_path).serving_certificate("serving", "10.97.0.1", "127.0.0.1")
    names = x509.load_pem_x509_certificate(certificate.read_bytes()).extensions.get_extension_for_class(
        x509.SubjectAlternativeName
    )
    addresses = names.value.get_values_for_type(x509.IPAddress)
    assert addresses == [ipaddress.ip_address(address) for address in ("127.0.0.1", "::1", "10.97.0.1")]
