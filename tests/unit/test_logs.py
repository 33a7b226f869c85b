"""A log line is one line, whatever is in it."""

import json
import logging
import sys

import pytest

from accelshare import logs

HOSTILE = "x\n2026-01-01T00:00:00.000Z info bind pod=a\r\x1b[2J\u2028\u202e\x9b"


class Raw:
    """Its repr, which the error quotes, has line breaks."""

    def __repr__(self) -> str:
        return HOSTILE


def record(*, failed: bool = False) -> logging.LogRecord:
    exc_info = None
    if failed:
        try:
            dict[Raw, str]()[Raw()]
        except KeyError:
            exc_info = sys.exc_info()
    return logging.LogRecord("accelshare.t", logging.INFO, "", 0, "bind pod=%s node=%s", (HOSTILE, "n1"), exc_info)


def test_values_begin_no_line_of_their_own() -> None:
    line = logs._Words().format(record())
    assert line.isprintable()
    assert r"pod=x\n2026-01-01T00:00:00.000Z info bind pod=a\r\x1b[2J\u2028\u202e\x9b node=n1" in line


def test_no_line_of_a_traceback_looks_like_a_log_line() -> None:
    first, *others = logs._Words().format(record(failed=True)).split("\n")
    assert first.endswith("node=n1")
    assert len(others) > 3
    for line in others:
        assert line.startswith("  ")
        assert line.isprintable()


@pytest.mark.parametrize("failed", [False, True])
def test_json_lines_keep_their_data(failed: bool) -> None:
    line = logs._Json().format(record(failed=failed))
    assert line.isprintable()
    assert json.loads(line)["pod"] == HOSTILE
    assert ("KeyError" in json.loads(line).get("error", "")) == failed
