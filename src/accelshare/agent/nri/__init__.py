"""Delivery through the container runtime's plugin interface (NRI): the runtime names pod and container, we answer what it gets.

Belongs here: the answers (`container_handler.py`, `container_decision.py`), containers that request no card (`guard.py`), the
edits as NRI messages (`adjustments.py`), the connection's life (`delivery.py`). Never: the protocol itself (`protocol/`),
whether a runtime's validator is on (`runtimes/`), which card a pod gets (its record names it).
"""
