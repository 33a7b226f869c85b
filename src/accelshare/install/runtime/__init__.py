"""The container runtime's configuration: enable its validator, show the change as a diff, restore the original to the byte.

Belongs here: what the runtime's files must say (`plan.py`), editing TOML without changing another byte (`toml_text.py`),
the runtime's own reading of its files (`program.py`), apply and restore (`apply.py`, with the steps of `host_files/changes.py`).
Never: a setting that has nothing to do with NRI. What is not understood is refused.
"""
