"""Runs a real Kubernetes on this machine, pinned and built from source: a control plane without root, or a whole node with it.

Belongs here: the pins, the build into a cache outside the repository, starting and stopping programs we did not write; the
image that a cluster runs us from (`image/`).
Never: importing anything of accelshare itself. Importers use the cluster as any user would.
"""
