"""The scheduler manager: keeps kube-scheduler's configuration applied on every control-plane node.

Belongs here: one reconciler for each node (`node_reconciler.py`), the ConfigMap with the wanted and present state of all nodes
(`state_configmap.py`), kube-scheduler's client certificate on the host (`client_files.py`).
Never: a rule about the configuration itself: `accelshare scheduler-config apply` does the same by hand.
"""
