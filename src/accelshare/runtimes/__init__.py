"""What container runtimes can do, read from their versions and configuration files.

Belongs here: which version has which feature (`versions.py`), how containerd and CRI-O combine their files (`containerd.py`,
`crio.py`), whether the runtime's validator is enabled (`validator_status.py`). Never: changing files (`install/runtime`), calling
a runtime (`agent/nri/protocol`).
"""
