"""What container runtimes can do and are told to do: read from their versions and from their files.

Belongs here: which versions have what (`versions.py`), how containerd and CRI-O put their files together (`containerd.py`,
`crio.py`), and whether a runtime will make a container without us (`insistence.py`). Never: changing a file
(`runtime_config/`), speaking with a runtime (`agent/nri/protocol/`).
"""
