"""`accelshare preflight`: checks of a cluster before an install or an upgrade.

Belongs here: one snapshot of the cluster (`snapshot.py`), pure checks that turn it into findings (`checks/`), printing findings
(`findings.py`). Never: a write to the cluster, a guess where nothing could be read.
"""
