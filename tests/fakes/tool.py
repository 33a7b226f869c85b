"""What the fake tools share: the cards of the data file beside them, and hanging when it says so.

Belongs here: reading the data. Never: a vendor's format. Copied beside each tool, so it imports nothing of ours.
"""

import os
import sys
import threading
from pathlib import Path


def cards() -> list[dict[str, str]]:
    """Each card's keys; does not return if the data lets this tool hang."""
    file = Path(os.environ.get("ACCELSHARE_FAKE_CARDS", Path(sys.argv[0]).parent / "cards"))
    lines = file.read_text(encoding="utf-8").splitlines() if file.exists() else []
    if f"hang={Path(sys.argv[0]).name}" in lines:
        threading.Event().wait()
    return [
        dict(part.strip().split("=", 1) for part in line.removeprefix("card ").split(","))
        for line in lines
        if line.startswith("card ")
    ]
