"""TLS certificates between kube-scheduler and the extender: created, renewed before they expire, stored in Secrets.

Belongs here: creating and reading a certificate (`x509.py`), when a new one is due and how a CA is replaced (`renewal.py`), the
three Secrets (`secrets.py`). Never: serving TLS (extender), files on a host (`install/scheduler`), certificates of others.

`x509.py` loads the library `cryptography`, which is large: import it where it is used.
"""
