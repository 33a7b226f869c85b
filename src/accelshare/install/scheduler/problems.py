"""Why kube-scheduler's configuration was not touched, or was put back.

    SchedulerConfigError
    ├── NotUnderstood    what is there cannot be changed without guessing; nothing was written
    ├── Clash            two settings that kube-scheduler would refuse together; nothing was written
    ├── ChangedByOthers  somebody else wrote our file; nothing was written
    ├── Rejected         the real kube-scheduler refused the new configuration; nothing was written
    └── RolledBack       the new scheduler did not become healthy, and the former files are back

Belongs here: these errors. Never: the rules that raise them.
"""


class SchedulerConfigError(Exception):
    """Anything this room can raise; its words say all there is to say."""


class NotUnderstood(SchedulerConfigError):  # noqa: N818 (it reads as what it is)
    """What is there cannot be changed without guessing."""


class Clash(SchedulerConfigError):  # noqa: N818
    """Two settings that kube-scheduler would refuse together."""


class ChangedByOthers(SchedulerConfigError):  # noqa: N818
    """A file that we wrote has a content that we did not write."""


class Rejected(SchedulerConfigError):  # noqa: N818
    """The real kube-scheduler refused the configuration before anything was written."""


class RolledBack(SchedulerConfigError):  # noqa: N818
    """The new scheduler did not become healthy; the former files are back."""
