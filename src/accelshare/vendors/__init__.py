"""What accelshare knows about vendors: one data file each, read and checked here, and the code that touches their hardware.

Belongs here: the names, units, texts and device files of a vendor, as data (`profiles/*.toml`); the shape of that data
(`profile.py`, `node_rules.py`), its rules (`schema.py`, `agreement.py`) and its reading (`catalog.py`); what a container is
given for its cards (`container_edits.py`); finding cards (`drivers/`).
Never: the cluster, scheduling, or a vendor's name in code outside `drivers/`. A new vendor is a new data file.
"""
