"""The container runtime's own configuration: told to insist on its plugins, shown as a diff, taken back to the byte.

Belongs here: what the runtime's files must say (`containerd.py`, `crio.py`), how that is put into a file of somebody else's
without touching another byte (`toml_text.py`), the order of the changes and of the way back (`record.py`, `apply.py`; the care
for each file is that of `files/`), the runtime's own word on it (`program.py`). Never: a setting that has nothing to do with
plugins. What is not understood is refused in words.
"""
