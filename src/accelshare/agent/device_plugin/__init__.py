"""Delivery through kubelet's device plugin interface: works on any cluster.

Belongs here: sockets, registration, gRPC. Never: which ids or edits (desk.py).
"""
