"""Reads the probe and metrics pages of programs on this machine.

Belongs here: fetching one, and finding a number in it. Never: what the number means.
"""

import http.client


def status(port: int, path: str) -> int:
    """The answer's status, or 0 if nobody answers. Blocks, but never for long."""
    try:
        return _get(port, path)[0]
    except (OSError, http.client.HTTPException):
        return 0


def text(port: int, path: str = "/metrics") -> str:
    code, body = _get(port, path)
    if code != http.client.OK:
        raise RuntimeError(f"127.0.0.1:{port}{path} answered {code}: {body[:200]}")
    return body


def value(page: str, name: str) -> float:
    """The first series of this name."""
    for line in page.splitlines():
        if line.startswith(name):
            return float(line.rpartition(" ")[2])
    raise RuntimeError(f"no {name} among {len(page.splitlines())} lines of metrics")


def _get(port: int, path: str) -> tuple[int, str]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status, answer.read().decode(errors="replace")
    finally:
        connection.close()
