"""kube-scheduler's configuration: shown as a diff, applied with a health check, restored to the byte.

Belongs here: what each version reads (`release.py`, `content.py`), how kube-scheduler is started (`static_pod.py`, `systemd.py`),
the pure plan (`plan.py`), checks before writing (`validation.py`), apply, rollback and restore (`apply.py`), manifests for
clusters whose kube-scheduler cannot be changed (`rendering.py`). `manager/` does the same on every control-plane node, and is the
only part that writes to the API server.
Never: scheduling, a file that is neither kube-scheduler's nor accelshare's. What is not understood is refused and left unchanged.
"""
