"""One part of an installation, whoever packed it.

Belongs here: the noun. Never: reading, printing.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Part:
    """A distribution of Python, a package of Debian, or the interpreter itself.

    `kind` is the package URL's type: `pypi`, `deb` or `generic`. `needs` are names of the same kind.
    """

    kind: str
    name: str
    version: str
    license: str = ""
    qualifiers: tuple[tuple[str, str], ...] = ()
    namespace: str = ""
    needs: tuple[str, ...] = ()
