"""What accelshare knows about vendors: one data file for each, and the code that finds their hardware.

Belongs here: the names, units, texts and device files of a vendor, as data (`profiles/*.toml`); the types of that data
(`profile.py`, `value_types.py`), its checks (`validation.py`, `agreement.py`) and its reading (`catalog.py`); what a container
gets for its cards (`container_edits.py`); finding cards (`drivers/`).
Never: the cluster, scheduling, or a vendor's name in code outside `drivers/`. A new vendor is a new data file.
"""
