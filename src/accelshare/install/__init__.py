"""Everything that installs accelshare and takes it out again: host files, kube-scheduler, container runtime, cluster objects.

Belongs here: planning, applying and restoring changes outside of accelshare's own processes. Never: serving, delivery.
"""
