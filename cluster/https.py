"""Requests to the programs that we start, verified against our own CA."""

from __future__ import annotations

import http.client
import json
import ssl
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

from cluster.ports import free_port as free_port  # many ask here

_TIMEOUT_S = 30.0


class Https:
    """A client that trusts one CA and shows one client certificate."""

    def __init__(self, ca_file: Path, certificate: Path, key: Path) -> None:
        self._context = ssl.create_default_context(cafile=str(ca_file))
        self._context.load_cert_chain(certificate, key)
        # Never through a proxy that the environment names: all we talk to is on loopback.
        self._opener = urllib.request.build_opener(
            urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=self._context)
        )

    def answers(self, url: str) -> bool:
        """Whether a GET is answered with 200."""
        try:
            with self._opener.open(url, timeout=_TIMEOUT_S) as response:
                response.read()
                return bool(response.status == http.HTTPStatus.OK)
        except (OSError, http.client.HTTPException):  # refused, reset, another's certificate, or a status of not ready
            return False

    def post(self, url: str, content: object) -> dict[str, Any]:
        """The JSON answer to a JSON question; raises urllib's HTTPError with the answer's text on any other status."""
        request = urllib.request.Request(url, json.dumps(content).encode(), {"Content-Type": "application/json"})  # noqa: S310 – ours
        with self._opener.open(request, timeout=_TIMEOUT_S) as response:
            answer: dict[str, Any] = json.load(response)
            return answer
