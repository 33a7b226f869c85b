"""kubelet's two gRPC interfaces as protocol files, and the Python that `make protos` generates from them.

Belongs here: field numbers and method names, which are kubelet's. Never: code written by hand.
"""
