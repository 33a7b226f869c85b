"""What accelshare knows about vendors: one data file each, read and checked here.

Belongs here: the names, units, texts and device files of a vendor, as data (`profiles/*.toml`); the shape of that data
(`profile.py`), its rules (`schema.py`, `agreement.py`) and its reading (`catalog.py`).
Never: the cluster, scheduling, or a vendor's name in code. A new vendor is a new data file.
"""
