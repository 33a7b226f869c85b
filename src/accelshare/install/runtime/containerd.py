"""What containerd's files must say so that it insists on its plugins: pure, and the same answer for the same files.

Belongs here: our drop-in, and the one line that makes containerd read it. Never: the disk but for reading.

The import that we add is a pattern which only our file matches: a plain name would end containerd's reading if our file were ever
removed, and a whole directory could bring in files that nobody reads today.
"""

from pathlib import Path
from typing import Any, Final

from accelshare.install.errors import NotUnderstood
from accelshare.install.runtime import toml_text
from accelshare.install.runtime.plan import Plan, PlannedFile
from accelshare.runtimes import containerd
from accelshare.runtimes.containerd import NRI, VALIDATOR
from accelshare.runtimes.plugin_settings import Said
from accelshare.runtimes.tree import Tree

DROP_IN: Final = "zz-accelshare.toml"  # files of one pattern are read by name, and the last word counts
_ONLY_OURS: Final = "zz-accelshare*.toml"
_WHOLE_DIRECTORY: Final = ("*.toml", "*")
# Read by every containerd that has a validator; newer ones translate it.
_NEW_MAIN: Final = "version = 3\n"
_GENERATED: Final = ("DO NOT EDIT", "do not edit")
_HEAD: Final = """\
# Written by `accelshare runtime-config`, which can take it back. It makes containerd refuse a container whose pod
# requires a plugin that is away, instead of making it without its cards.
"""


def plan(config: Path, *, directory: Path | None, merges: bool) -> Plan:
    """`directory`: where our file goes, if not where containerd looks already. `merges`: it joins sections key by key."""
    raw = Tree().read(config)
    main = containerd.parse(config, raw) if raw is not None else {}
    drop_in = (directory or _directory(config, main)) / DROP_IN
    without_us = Tree({drop_in: None})
    read = containerd.layers(config, without_us)
    before = containerd.said(read)
    _refuse_what_cannot_be_undone(before)
    if before.insists:
        return Plan((), (f"the validator is on already, in {before.validator_in}",))
    carried = {} if merges else containerd.section(read.layers)
    version = main.get("version") if raw is not None else 3
    ours = PlannedFile(drop_in, _drop_in(version, carried, before), ours=True)
    files = [ours]
    if drop_in not in containerd.layers(config, Tree({drop_in: ours.content})).paths:
        files.append(_main(config, raw, str(drop_in.with_name(_ONLY_OURS))))
    _require_effect(config, files, drop_in)
    return Plan(tuple(files))


def _directory(config: Path, main: dict[str, Any]) -> Path:
    """A directory of which containerd reads every file; the last such one, because the last word counts."""
    for pattern in reversed(main.get("imports", [])):
        place = config.parent / str(pattern)
        if place.name in _WHOLE_DIRECTORY and "*" not in str(place.parent):
            return place.parent
    return config.parent / "conf.d"


def _refuse_what_cannot_be_undone(before: Said) -> None:
    if before.switched_off_in is not None:
        raise NotUnderstood(
            f"{before.switched_off_in} has {NRI!r} in disabled_plugins, which no other file can undo: take it out there"
        )


def _drop_in(version: object, carried: dict[str, Any], before: Said) -> bytes:
    """Not more than is needed: whatever is said here, the operator's own files cannot say any more."""
    section = dict(carried)
    if not before.nri:
        section["disable"] = False
    if not before.connections:
        section["disable_connections"] = False
    section[VALIDATOR] = {**section.get(VALIDATOR, {}), "enable": True}
    # Newer versions of containerd refuse a drop-in of a higher version than the main file's.
    head = f"{_HEAD}version = {version}\n\n" if version is not None else f"{_HEAD}\n"
    return (head + "\n".join(toml_text.table(("plugins", NRI), section)) + "\n").encode()


def _main(config: Path, raw: bytes | None, pattern: str) -> PlannedFile:
    if raw is None:
        text = f"# Written by `accelshare runtime-config`, which can take it back.\n{_NEW_MAIN}"
        return PlannedFile(config, toml_text.with_import(str(config), text.encode(), pattern), ours=True)
    first = raw[:2000].decode(errors="replace")
    if any(words in first for words in _GENERATED):
        raise NotUnderstood(
            f"{config} is made by another program, which would overwrite a change; let that program add {pattern!r} to the list "
            "of imports, or name a directory that it imports already with --drop-in-directory"
        )
    return PlannedFile(config, toml_text.with_import(str(config), raw, pattern), ours=False)


def _require_effect(config: Path, files: list[PlannedFile], drop_in: Path) -> None:
    """As far as we can read: nobody speaks after us, and nothing keeps containerd from reading us."""
    read = containerd.layers(config, Tree({file.path: file.content for file in files}))
    after = containerd.said(read)
    if after.insists:
        return
    if drop_in not in read.paths:
        raise NotUnderstood(
            f"{read.stopped_at} is imported and not there, and containerd reads nothing after that: make it, or do not import it"
        )
    later = [str(path) for path in read.paths[read.paths.index(drop_in) + 1 :]]
    raise NotUnderstood(
        f"{' and '.join(later)} is read after {drop_in} and has the last word: leave disable, disable_connections and "
        f'{VALIDATOR}.enable out of [plugins."{NRI}"] there'
    )
