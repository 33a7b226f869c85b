"""Errors of every install command. The message says what is wrong, its value, and what would be right.

    InstallError
    ├── NotUnderstood     what is there cannot be changed without guessing; nothing was written
    ├── Clash             two settings that would be refused together; nothing was written
    ├── ChangedByOthers   somebody else changed a file that accelshare wrote; nothing was written
    ├── Rejected          kube-scheduler or the runtime refuses the new configuration; the former files are in place
    ├── RolledBack        the new kube-scheduler did not become healthy; the former files are restored
    ├── NoLease           kube-scheduler's Lease does not exist or cannot be read
    ├── CertificateError  a certificate or a Secret cannot be read, or is not managed by accelshare
    ├── UnknownNodes      a node was named that the cluster does not have
    └── ForeignLabel      a node has the label with a value that somebody else set

Belongs here: these errors. Never: the rules that raise them.
"""


class InstallError(Exception):
    """Anything that an install command refuses or fails at."""


class NotUnderstood(InstallError):  # noqa: N818 (the names say what happened)
    """What is there cannot be changed without guessing."""


class Clash(InstallError):  # noqa: N818
    """Two settings that would be refused together."""


class ChangedByOthers(InstallError):  # noqa: N818
    """A file that accelshare wrote has a content that accelshare did not write."""


class Rejected(InstallError):  # noqa: N818
    """The program that reads the configuration refuses it."""


class RolledBack(InstallError):  # noqa: N818
    """The new kube-scheduler did not become healthy; the former files are restored."""


class NoLease(InstallError):  # noqa: N818
    """kube-scheduler's Lease does not exist or cannot be read."""


class CertificateError(InstallError):
    """A certificate or a Secret cannot be read, or is not managed by accelshare."""


class UnknownNodes(InstallError):  # noqa: N818
    """A node was named that the cluster does not have."""


class ForeignLabel(InstallError):  # noqa: N818
    """A node has the label with a value that somebody else set."""
