"""Which request gets which fault."""

from accelshare.testing.api_server import Faults


def test_a_fault_applies_as_often_as_configured() -> None:
    faults = Faults()
    ordered = faults.answer(503, times=2)
    assert [faults.meet("GET", "/x") for _ in range(3)] == [ordered, ordered, None]
    assert ordered.hits == 2


def test_a_fault_applies_only_to_its_method_and_path() -> None:
    faults = Faults()
    binding = faults.drop_after(method="POST", path=r"/binding$")
    watch = faults.drop_before(path=r"/pods\?.*watch=")
    assert faults.meet("GET", "/api/v1/pods/a/binding") is None
    assert faults.meet("POST", "/api/v1/pods/a") is None
    assert faults.meet("GET", "/api/v1/pods?watch=true") is watch
    assert faults.meet("POST", "/api/v1/namespaces/ml/pods/a/binding") is binding


def test_faults_apply_in_the_order_in_which_they_were_added() -> None:
    faults = Faults()
    first, second = faults.answer(500), faults.answer(429)
    assert [faults.meet("GET", "/") for _ in range(3)] == [first, second, None]
    faults.answer(500)
    faults.clear()
    assert faults.meet("GET", "/") is None
