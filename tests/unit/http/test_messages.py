"""The path of a request, whatever its target is."""

import pytest

from accelshare.http.messages import HttpRequest


@pytest.mark.parametrize(
    ("target", "path"),
    [
        ("/metrics?a=/b", "/metrics"),
        ("/a%2Fb", "/a/b"),
        ("http://host:80/a/b?c", "/a/b"),
        ("http://host", ""),
        ("*", "*"),
        ("//[x", "//[x"),
        ("http://[::1/x", "/x"),
        ("http://a]/x", "/x"),
        ("http://[a]b/x", "/x"),
    ],
)
def test_every_target_has_a_path(target: str, path: str) -> None:
    """Found by tests/fuzz: a host with one bracket was answered with 500 and a traceback in the log."""
    assert HttpRequest("GET", target).path == path
