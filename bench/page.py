"""The beginning of every benchmark page: the machine, its noise, and the goals.

Belongs here: these two tables. Never: what one page alone shows (document.py, node/document.py).
"""

from collections.abc import Mapping, Sequence

from bench.goals import REFERENCE_LOOP_S, Verdict
from bench.noise import Noise
from bench.procfs import Machine
from bench.tables import table


def machine_table(machine: Machine, noise: Noise, versions: Mapping[str, str]) -> str:
    rows = [
        ("CPU", f"{machine.cpu}, {machine.cores} cores"),
        ("memory", f"{machine.memory_gb:.0f} GB"),
        ("kernel", machine.kernel),
        *versions.items(),
        ("load before and after", f"{noise.load_before:.2f} and {noise.load_after:.2f}"),
        (
            "noise",
            f"a fixed loop, timed {noise.samples} times in between: wall {1000 * noise.wall.middle:.0f} ms, "
            f"spread {noise.wall.percent:.0f} %; CPU {1000 * noise.cpu.middle:.0f} ms, spread {noise.cpu.percent:.0f} %",
        ),
    ]
    lines = "\n".join(f"| {what} | {value} |" for what, value in rows)
    words = "Spread is from the least to the most, as a part of the median. A ratio that differs from 1 by less proves nothing."
    return f"| the machine | |\n|---|---|\n{lines}\n\n{words}\n"


def goals_section(verdicts: Sequence[Verdict]) -> str:
    """Empty if the run measured no goal."""
    text = (
        f"Goals in seconds were set on a machine whose fixed loop takes {1000 * REFERENCE_LOOP_S:g} ms. "
        "A factor says how much longer the loop takes here."
    )
    rows = [(verdict.goal, verdict.measured, "met" if verdict.met else "**not met**") for verdict in verdicts]
    return f"## Goals\n\n{text}\n\n{table(('goal', 'measured', ''), rows)}\n" if rows else ""
