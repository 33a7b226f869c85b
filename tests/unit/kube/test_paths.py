"""Names in paths."""

import pytest

from accelshare.kube import paths


def test_a_pods_binding_is_under_the_pod() -> None:
    assert paths.binding("ml", "train-0.a") == "/api/v1/namespaces/ml/pods/train-0.a/binding"


@pytest.mark.parametrize("name", ["", "../nodes/n1", "a/b", "a?x=1", "A", "a%2fb", ".", "a" * 254, "a\n"])
def test_what_is_no_name_never_gets_into_a_path(name: str) -> None:
    """Names come from requests; one with '..' would address another object."""
    with pytest.raises(ValueError, match="it must be lower-case letters"):
        paths.pod("ml", name)
    with pytest.raises(ValueError, match="namespace"):
        paths.events(name)
