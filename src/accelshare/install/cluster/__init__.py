"""Changes of Node objects at install and uninstall: labels that select nodes, and cleanup of what agents wrote.

Belongs here: what an installation writes on Node objects. Never: files of a host.
"""
