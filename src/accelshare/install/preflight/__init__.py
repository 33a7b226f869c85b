"""Is this cluster ready for accelshare? What a careful operator would look at before an install, looked at in one go.

Belongs here: one snapshot of the cluster (`reading.py`), checks that make findings of it (`checks/`, pure), printing them.
Never: a write to the cluster, a guess where nothing could be read, other shells.
"""
