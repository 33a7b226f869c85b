"""Measures the CPU time of `accelshare inspect` until its first byte, and that of a Python that does nothing.

Belongs here: starting both in turn, many times. Never: the extender.
"""

import asyncio
import os
import subprocess
import sys
from pathlib import Path
from typing import Final

from bench.noise import NoiseMeter
from bench.procfs import cpu_s
from bench.results import FirstByte
from bench.scene import Scene

NODES: Final = 4


async def measure(scene: Scene, noise: NoiseMeter, *, starts: int) -> tuple[FirstByte, ...]:
    await scene.grow_to(NODES)
    scene.progress.doing(f"inspect, {starts} times, {scene.nodes:,} nodes")
    measured: list[FirstByte] = []
    for _ in range(starts):
        noise.listen()
        measured.append(await asyncio.to_thread(_one, scene.plane.kubeconfig))
    return tuple(measured)


def _one(kubeconfig: Path) -> FirstByte:
    program = str(Path(sys.executable).with_name("accelshare"))
    environ = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    _, bare_s = _cpu([sys.executable, "-c", "pass"], environ)
    first_s, whole_s = _cpu([program, "inspect"], environ | {"KUBECONFIG": str(kubeconfig)})
    return FirstByte(bare_ms=1000 * bare_s, inspect_ms=1000 * first_s, to_the_end_ms=1000 * whole_s)


def _cpu(command: list[str], environ: dict[str, str]) -> tuple[float, float]:
    """User and system CPU seconds until the first byte (or the end, if none comes), and until the end."""
    process = subprocess.Popen(command, env=environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.read(1)
    # The process continues meanwhile, so this is slightly too much, never too little.
    first_s = cpu_s(process.pid)
    process.stdout.read()
    assert process.stderr is not None
    errors = process.stderr.read().decode(errors="replace")
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise RuntimeError(f"{' '.join(command)} ended with {process.returncode}: {errors.strip()[:300]}")
    return first_s, usage.ru_utime + usage.ru_stime
