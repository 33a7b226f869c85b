"""A second real node: a virtual machine with a kernel of its own, systemd and cgroup v2, beside a control plane of the project.

Belongs here: building the guest's kernel and disk, its network namespace, starting and ending it. Never: the node that
`make up` makes of this machine (cluster/local), and tests.
"""
