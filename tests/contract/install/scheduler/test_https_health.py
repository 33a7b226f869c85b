"""A scheduler's health over real TLS with a certificate that it signed itself."""

import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from accelshare.install.scheduler.health import HttpsScheduler
from cluster.certificates import Authority
from cluster.https import free_port


class Handler(BaseHTTPRequestHandler):
    readyz = 500

    def do_GET(self) -> None:
        status = 200 if self.path == "/healthz" else self.readyz
        self.send_response(status)
        self.end_headers()
        self.wfile.write(b"ok" if status == 200 else b"informers not synced")

    def log_message(self, *_words: object) -> None:
        """Quiet."""


@contextmanager
def serving(directory: Path, port: int) -> Iterator[None]:
    certificate, key = Authority(directory).serving_certificate("scheduler")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    server = HTTPServer(("127.0.0.1", port), Handler)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_healthy_sick_gone_and_another_one(tmp_path: Path) -> None:
    port = free_port()
    url = f"https://127.0.0.1:{port}"
    with serving(tmp_path / "one", port):
        well, sick = HttpsScheduler(f"{url}/healthz").check_health(), HttpsScheduler(f"{url}/readyz").check_health()
        assert (well.healthy, well.gone) == (True, False)
        assert (sick.healthy, sick.message) == (False, f"{url}/readyz: 500 informers not synced")
        assert sick.certificate == well.certificate
    gone = HttpsScheduler(f"{url}/healthz").check_health()
    assert (gone.healthy, gone.gone, gone.certificate) == (False, True, None)
    with serving(tmp_path / "two", port):
        other = HttpsScheduler(f"{url}/healthz").check_health()
        assert other.certificate not in (None, well.certificate)


@pytest.mark.parametrize("status", [200, 401, 403, 404, 500, 503])
def test_one_that_says_that_it_is_not_ready_is_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, status: int) -> None:
    """One of an old version does not know the question, or not from everybody."""
    monkeypatch.setattr(Handler, "readyz", status)
    port = free_port()
    scheduler = HttpsScheduler(f"https://127.0.0.1:{port}/healthz")
    with serving(tmp_path, port):
        reason = scheduler.not_ready()
    assert (reason is None) == (status < 500)
    assert reason is None or f"{status} informers not synced" in reason
    assert "/readyz" in (scheduler.not_ready() or ""), "one that is gone is not ready"


def test_the_end_of_the_log_says_why(tmp_path: Path) -> None:
    log = tmp_path / "kube-system_kube-scheduler-n1_abc" / "kube-scheduler" / "0.log"
    log.parent.mkdir(parents=True)
    log.write_text("".join(f"line {number}\n" for number in range(100)))
    log.with_name("1.log").touch()  # it has just been started again
    words = HttpsScheduler("https://127.0.0.1:1/", tmp_path).last_log_lines()
    assert words.splitlines()[0] == f"the end of {log}:"
    assert words.splitlines()[-1] == "line 99"
    assert HttpsScheduler("https://127.0.0.1:1/", tmp_path / "none").last_log_lines() == ""


def test_a_log_that_goes_while_it_is_read_is_not_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """kubelet removes logs of dead containers at any moment, and a roll-back must not stumble over that."""
    place = tmp_path / "kube-system_kube-scheduler-n1_abc" / "kube-scheduler"
    place.mkdir(parents=True)
    for name in ("0.log", "1.log"):
        (place / name).write_text(f"the words of {name}\n")
    read = Path.read_text

    def going(path: Path, encoding: str, errors: str) -> str:
        if path.name == "0.log":
            path.unlink()
        return read(path, encoding=encoding, errors=errors)

    monkeypatch.setattr(Path, "read_text", going)
    assert HttpsScheduler("https://127.0.0.1", tmp_path).last_log_lines() == f"the end of {place}/1.log:\nthe words of 1.log"
