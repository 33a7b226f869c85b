"""Why certificates were not touched.

Belongs here: this error. Never: the rules that raise it.
"""


class CertificateError(Exception):
    """What is there cannot be read or is not ours; its words say all there is to say."""
