"""The helper process that runs a vendor's library, or a profile's pattern.

A line of JSON on standard input is a call, a line of output its answer.

Belongs here: the helper's own side of `library_process.py`. It imports little: it is started often. Never: asyncio, the agent.
"""

import ctypes
import json
import os
import resource
import signal
import sys
from collections.abc import Mapping
from dataclasses import asdict, is_dataclass
from importlib import import_module
from typing import Any, Final

from accelshare.vendors.drivers.driver import NotInstalled, QueryFailed
from accelshare.vendors.drivers.library_errors import LibraryError

# The libraries that can be opened, and the methods that can be called.
SESSIONS: Final[Mapping[str, str]] = {
    "nvml": "accelshare.vendors.drivers.nvidia_nvml:Nvml",
    "xpuml": "accelshare.vendors.drivers.kunlun_xpuml:Xpuml",
    "efml-first": "accelshare.vendors.drivers.enflame_efml:FirstEfml",
    "efml-newer": "accelshare.vendors.drivers.enflame_efml:NewerEfml",
    "pattern": "accelshare.vendors.drivers.patterns:Matcher",
}
CALLS: Final = frozenset(
    {
        "listing",
        "statuses",
        "processes",
        "xid_events",
        "memory_limit",
        "memory_used",
        "set_memory_limit",
        "match_lines",
        "match_blocks",
    }
)
_PR_SET_PDEATHSIG = 1


def main() -> None:
    """Answer until standard input ends. The process ends with its parent, also while a library hangs."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != int(sys.argv[1]):
        return
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    # Libraries print to standard output, which carries our answers.
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    session: Any = None

    def answer(content: object) -> None:
        answers.write(json.dumps(content) + "\n")
        answers.flush()

    answer({"result": None})
    for line in sys.stdin:
        call, *arguments = json.loads(line)
        try:
            if call == "open":
                if session is not None:
                    session.close()
                session = None
                session = _open_and_call(*arguments)
                answer({"result": None})
            elif call in CALLS and session is not None:
                answer({"result": _plain(getattr(session, call)(*arguments))})
            else:
                answer({"failed": f"{call!r} cannot be called; a library must be open, and it must be one of {sorted(CALLS)}"})
        except LibraryError as error:
            answer({"failed": str(error), "code": error.code})
        except QueryFailed as error:
            answer({"failed": str(error), "absent": isinstance(error, NotInstalled)})
        except Exception as error:  # any failure of the library is an answer
            answer({"failed": f"{type(error).__name__}: {error}"})
    if session is not None:
        session.close()


def _open_and_call(session: str, library: str) -> Any:
    module, _, name = SESSIONS[session].partition(":")
    return getattr(import_module(module), name)(library)


def _plain(value: object) -> object:
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    return asdict(value) if is_dataclass(value) and not isinstance(value, type) else value


if __name__ == "__main__":
    main()
