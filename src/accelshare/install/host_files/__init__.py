"""Changes of files on a host that can be interrupted at any moment and undone to the byte.

Belongs here: atomic writes (`disk.py`), the record of what was changed and its backups (`archive.py`), and the steps that every
change takes: plan, refuse, record, write, roll back, restore (`changes.py`). Never: what a file means, or why it is changed.
"""
