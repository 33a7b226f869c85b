"""kube-scheduler's own configuration: planned as a diff, put in carefully, taken out again to the byte.

Belongs here: what kube-scheduler must be told so that it asks the extender, for every version (`release.py`, `entry.py`,
`content.py`); how a static pod or a systemd unit starts it (`static_pod.py`, `systemd.py`); the pure plan (`plan.py`); its
careful execution with backup, journal, wait and roll-back (`apply.py`); manifests for clusters whose scheduler cannot be edited.
`managing/` does the same on every control-plane node by itself, and is the only part that writes to the API server;
`leadership.py` reads kube-scheduler's Lease there.
Never: scheduling, a file that is not kube-scheduler's or our own. What is not understood is refused in words and left alone.
"""
