"""A whole Kubernetes node on this machine, as kubeadm makes it: real kubelet, real containers; removed without leftovers.

Belongs here: what one machine needs to be a cluster for a while, and the undoing of each step. Never: anything of accelshare
itself, and never a step on what a Kubernetes that is already here uses: all its paths are covered by private directories in a
mount namespace of our own.
"""

from cluster.local.local_cluster import LocalCluster

__all__ = ["LocalCluster"]
