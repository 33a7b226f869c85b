"""Fakes that the demo and the tests share: an API server in memory, a kubelet and a container runtime that run nothing.

Belongs here: stand-ins for programs that accelshare talks to, with their real protocols. Never: used by the product's commands.
"""
