"""Certificates between kube-scheduler and the extender: made, renewed before they expire, and kept in Secrets.

Belongs here: making a CA and leaves (`making.py`), reading them (`reading.py`), when a new one is due and how a CA hands over to
the next without a moment in which nobody trusts anybody (`renewal.py`), and the three Secrets they live in (`keeping.py`).
Never: serving TLS (extender), kube-scheduler's files on a host (scheduler_config), certificates of anybody else.

`making` and `reading` load the library `cryptography`, which nobody else has to pay for: import them where they are used.
"""
