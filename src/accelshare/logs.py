"""Sets up logging: one line per event, as text or as JSON, on standard error or in a rotating file.

Belongs here: the format of lines and where they go. Never: what is logged.
"""

import logging
import sys
from datetime import UTC, datetime
from functools import lru_cache
from logging.handlers import RotatingFileHandler
from pathlib import Path

import orjson

from accelshare.terminal import visible, visible_json

LEVELS = ("debug", "info", "warning", "error")


class _Words(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        return f"{_when(record)} {record.levelname.lower()} {_message(self, record)}"


class _Json(logging.Formatter):
    """`filter pod=ml/a node=n1` becomes {"event": "filter", "pod": "ml/a", "node": "n1"}: the arguments keep their types."""

    def format(self, record: logging.LogRecord) -> str:
        parts = str(record.msg).split(" ")
        keys = [part.partition("=")[0] for part in parts if "=%" in part]
        line: dict[str, object] = {"time": _when(record), "level": record.levelname.lower(), "logger": record.name}
        if isinstance(record.args, tuple) and len(keys) == len(record.args) and "=" not in parts[0]:
            line |= {"event": parts[0], **dict(zip(keys, record.args, strict=True))}
        else:
            line["event"] = record.getMessage()
        if record.exc_info:
            line["error"] = self.formatException(record.exc_info)
        return visible_json(orjson.dumps(line, default=str).decode())


def set_up(*, level: str, form: str, file: Path | None, file_mib: int, files: int) -> None:
    """Send our own log lines, and warnings of libraries, to the configured output."""
    # No line of ours has the source location, the thread or the process, so they are not determined for each.
    logging._srcfile = None
    logging.logThreads = logging.logProcesses = logging.logMultiprocessing = False
    handler: logging.Handler = (
        RotatingFileHandler(file, maxBytes=file_mib * 2**20, backupCount=files, encoding="utf-8")
        if file is not None
        else logging.StreamHandler(sys.stderr)
    )
    handler.setFormatter(_Json() if form == "json" else _Words())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.WARNING)
    logging.getLogger("accelshare").setLevel(level.upper())


@lru_cache(maxsize=2)
def _second(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S")


def _when(record: logging.LogRecord) -> str:
    return f"{_second(int(record.created))}.{int(record.msecs):03d}Z"


def _message(formatter: logging.Formatter, record: logging.LogRecord) -> str:
    # One line per event: a name from others must not begin another. A traceback is indented, so that its lines look different.
    message = visible(record.getMessage())
    if not record.exc_info:
        return message
    trace = formatter.formatException(record.exc_info).split("\n")
    return "\n".join([message, *(f"  {visible(line)}" for line in trace)])
