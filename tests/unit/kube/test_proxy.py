"""The proxy from environment variables."""

import pytest

from accelshare.kube.config import proxy_from_environment

PROXY = "http://proxy.test:3128"


@pytest.mark.parametrize(
    ("server", "environ", "expected"),
    [
        ("https://api.test", {}, None),
        ("https://api.test", {"HTTPS_PROXY": PROXY}, PROXY),
        ("https://api.test", {"https_proxy": PROXY}, PROXY),
        ("https://api.test", {"HTTPS_PROXY": "proxy.test:3128"}, PROXY),
        ("https://api.test", {"HTTP_PROXY": PROXY}, None),
        ("http://api.test", {"HTTP_PROXY": PROXY}, PROXY),
        ("https://127.0.0.1:6443", {"HTTPS_PROXY": PROXY}, None),
        ("https://[::1]:6443", {"HTTPS_PROXY": PROXY}, None),
        ("https://localhost:6443", {"HTTPS_PROXY": PROXY}, None),
    ],
)
def test_the_scheme_decides_which_variable_counts(server: str, environ: dict[str, str], expected: str | None) -> None:
    assert proxy_from_environment(server, environ) == expected


@pytest.mark.parametrize(
    ("rules", "host", "direct"),
    [
        ("*", "api.test", True),
        ("api.test", "api.test", True),
        ("test", "api.test", True),
        (".test", "api.test", True),
        ("*.test", "api.test", True),
        (".api.test", "api.test", False),
        ("est", "api.test", False),
        ("other.test, api.test", "api.test", True),
        ("api.test:6443", "api.test", True),
        ("api.test:443", "api.test", False),
        ("10.96.0.0/12", "10.96.0.1", True),
        ("10.0.0.0/16", "10.96.0.1", False),
        ("10.96.0.1", "10.96.0.1", True),
        ("fd00::/8", "[fd00::1]", True),
        ("fd00::1", "[fd00::1]", True),
        ("10.0.0.0/99", "10.96.0.1", False),
        ("", "api.test", False),
    ],
)
def test_no_proxy_is_read_as_go_reads_it(rules: str, host: str, direct: bool) -> None:
    """In a pod the API server is an address of the service network, which NO_PROXY names as a CIDR."""
    chosen = proxy_from_environment(f"https://{host}:6443", {"HTTPS_PROXY": PROXY, "NO_PROXY": rules})
    assert chosen == (None if direct else PROXY)
