"""A real Kubernetes control plane on this machine: pinned versions, built from source, on loopback, without root.

Belongs here: the pins, the build into a cache outside the repository, starting and stopping programs we did not write.
Never: anything of accelshare itself. Whoever imports this room talks to the cluster as any user would.
"""
