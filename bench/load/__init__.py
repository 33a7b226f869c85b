"""The extender under load for minutes: pods come and go in a large cluster, on a real control plane.

Belongs here: the load, what it is compared with, and its page. Never: single calls and start-up (the package above).
"""
