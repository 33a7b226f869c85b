"""Careful changes of files on a host: each replaced whole or not at all, noted before it is made, taken back to the byte.

Belongs here: replacing one file (`disk.py`), what was there and what is under way (`journal.py`), the place where both are kept
(`archive.py`), the difference as people read it (`difference.py`). Never: what a file means, which one is changed and why.
"""
