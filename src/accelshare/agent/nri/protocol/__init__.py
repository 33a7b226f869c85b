"""NRI, the container runtime's plugin interface: frames, ttrpc calls, messages, and a connection that is kept.

Belongs here: mux frames, ttrpc, the generated messages, registration and reconnecting, one plugin per node. Never: which
container gets which card; a `Handler` (plugin.py) decides that.
"""
