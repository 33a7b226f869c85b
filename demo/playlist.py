"""What is played: files of examples/, in acts.

Belongs here: reading the playlist and the manifests it names. Never: what a manifest means (workloads.py).
"""

from pathlib import Path
from typing import Any, Final

import msgspec
import yaml

from demo.errors import DemoError

EXAMPLES: Final = Path(__file__).parents[1] / "examples"
PLAYLIST: Final = EXAMPLES / "demo" / "playlist.yaml"

Object = dict[str, Any]


class Act(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A title, then manifests to apply or one pod (`namespace/name`) to delete."""

    title: str
    apply: tuple[str, ...] = ()
    delete: str = ""


class PlayedNode(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A file with one node, and the profile whose cards its agent hands out."""

    file: str
    vendor: str


class Playlist(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    nodes: tuple[PlayedNode, ...]
    acts: tuple[Act, ...]
    profiles: str = ""  # directory with profiles that declare cards

    @property
    def profiles_directory(self) -> Path:
        return EXAMPLES / self.profiles


def load(path: Path = PLAYLIST) -> Playlist:
    try:
        return msgspec.convert(_documents(path)[0], Playlist)
    except msgspec.ValidationError as error:
        raise DemoError(f"{path}: {error}") from error


def manifests(name: str) -> list[Object]:
    """All objects of one file of examples/, YAML or JSON."""
    return _documents(EXAMPLES / name)


def _documents(path: Path) -> list[Object]:
    try:
        documents = [document for document in yaml.safe_load_all(path.read_text(encoding="utf-8")) if document]
    except OSError as error:
        raise DemoError(f"{path} cannot be read: {error.strerror}") from error
    except yaml.YAMLError as error:
        raise DemoError(f"{path} is not YAML: {error}") from error
    if not documents or not all(isinstance(document, dict) for document in documents):
        raise DemoError(f"{path} holds no objects")
    return documents
