"""`accelshare doctor`: what is wrong with accelshare in a running cluster, and how to fix it.

Belongs here: reading the cluster once (`reading.py`), the value that the checks see (`live_cluster.py`), pure checks (`checks/`),
printing (`findings.py`). Never: a write to the cluster, a guess where nothing could be read.
"""
