"""NRI, the container runtime's plugin interface, spoken in Python: bytes, calls, messages, and a connection that comes back.

Belongs here: mux frames, ttrpc, the few messages, registration and reconnecting, one plugin per node, and a runtime in memory
that speaks the same bytes. Never: which container gets which card; a `Handler` says that.
"""
