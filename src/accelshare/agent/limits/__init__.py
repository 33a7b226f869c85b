"""Limits of card memory that the agent itself sets on the cgroups of containers, by the kernel or the vendor's driver.

Belongs here: where a container's cgroup is (`cgroups.py`), the kernel's controller (`dmem.py`), which limits a container must
have (`wanted.py`), setting, reading back and proving them (`setting.py`), and repairing those of living containers (`review.py`).
Never: which way a card uses (`vendors/enforcement.py`), how cards reach a container (`nri/`).
"""
