"""What the benchmark reads from the extender's metrics page."""

from bench.throughput import connections, wasted


def test_the_part_that_was_not_kept() -> None:
    lines = ('total{outcome="kept"} 90.0', 'total{outcome="late"} 10.0', "open 3.0")
    page = "".join(f"accelshare_promises_{line}\n" for line in lines)
    assert round(wasted(page), 3) == 0.1


def test_without_promises_nothing_is_wasted() -> None:
    assert wasted('accelshare_promises_total{outcome="kept"} 0.0\n') == 0.0


def test_connections_are_read_from_the_page() -> None:
    assert connections("# TYPE accelshare_tls_connections_total counter\naccelshare_tls_connections_total 174.0\n") == 174
    assert connections("") == 0
