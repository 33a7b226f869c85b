"""Why the runtime's configuration was not touched, or was put back.

    RuntimeConfigError
    ├── NotUnderstood    what is there cannot be changed without guessing; nothing was written
    ├── ChangedByOthers  somebody else wrote a file that we had written; nothing was written
    └── Rejected         the runtime itself did not read what was written as it was meant; the former files are back

Belongs here: these errors. Never: the rules that raise them.
"""


class RuntimeConfigError(Exception):
    """Anything this room can raise; its words say all there is to say."""


class NotUnderstood(RuntimeConfigError):  # noqa: N818 (it reads as what it is)
    """What is there cannot be changed without guessing."""


class ChangedByOthers(RuntimeConfigError):  # noqa: N818
    """A file that we wrote has a content that we did not write."""


class Rejected(RuntimeConfigError):  # noqa: N818
    """The runtime itself reads the new files in another way than they were meant."""
