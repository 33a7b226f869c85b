"""What containerd's and CRI-O's files must say so that the validator is enabled: pure but for reading the files.

Belongs here: the drop-in, and the one line that makes containerd import it. Never: writing.

The import that is added to containerd's main file is a pattern that only the drop-in matches: with a plain name containerd would
stop reading if the drop-in were ever removed, and a whole directory could import files that containerd does not read today.
The settings of CRI-O were read in its source, not tried on a running CRI-O.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from accelshare.install.errors import NotUnderstood
from accelshare.install.host_files.changes import PlannedFile
from accelshare.install.runtime import toml_text
from accelshare.runtimes import containerd, crio
from accelshare.runtimes.config_files import NriSettings, Tree, parse
from accelshare.runtimes.containerd import NRI, VALIDATOR

# Files are read in the order of their names, and the last one decides.
CONTAINERD_DROP_IN: Final = "zz-accelshare.toml"
CRIO_DROP_IN: Final = "zz-accelshare.conf"
UNTRIED: Final = "the settings for CRI-O were read in its source, not tried on a running CRI-O; check its log afterwards"
_ONLY_DROP_IN: Final = "zz-accelshare*.toml"
_WHOLE_DIRECTORY: Final = ("*.toml", "*")
_NEW_MAIN: Final = "version = 3\n"  # every containerd with a validator reads it; newer ones convert it
_GENERATED: Final = ("DO NOT EDIT", "do not edit")
_BY: Final = "# Written by `accelshare runtime-config`; `accelshare runtime-config restore` undoes it.\n"
_HEAD: Final = _BY + "# {runtime} refuses a container whose pod requires an NRI plugin that is not connected.\n"


@dataclass(frozen=True, slots=True)
class RuntimePlan:
    """The files in the order of writing: the drop-in, then what makes the runtime read it. No file: nothing to do."""

    files: tuple[PlannedFile, ...]
    notices: tuple[str, ...] = ()


def for_containerd(config: Path, *, directory: Path | None, merges: bool) -> RuntimePlan:
    """`directory`: where the drop-in goes; default: where containerd reads. `merges`: it merges sections key by key."""
    raw = Tree().read(config)
    main = parse(config, raw) if raw is not None else {}
    path = (directory or _drop_in_directory(config, main)) / CONTAINERD_DROP_IN
    read = containerd.layers(config, Tree({path: None}))
    before = containerd.nri_settings(read)
    if before.disabled_in is not None:
        raise NotUnderstood(f"{before.disabled_in} has {NRI!r} in disabled_plugins, which no other file undoes; remove it there")
    if before.enforced:
        return RuntimePlan((), (f"the validator is already enabled, in {before.validator_in}",))
    carried = {} if merges else containerd.section(read.layers)
    version = main.get("version") if raw is not None else 3
    drop_in = _file(path, _containerd_drop_in(version, carried, before))
    files = [drop_in]
    if path not in containerd.layers(config, Tree({path: drop_in.content})).paths:
        files.append(_main(config, raw, str(path.with_name(_ONLY_DROP_IN))))
    _require_effect(config, files, path)
    return RuntimePlan(tuple(files))


def for_crio(config: Path, *, directory: Path | None) -> RuntimePlan:
    """CRI-O reads its drop-in directory by itself; the main file stays unchanged."""
    path = (directory or crio.directory(config)) / CRIO_DROP_IN
    before = crio.nri_settings(crio.layers(config, Tree({path: None})))
    if before.enforced:
        return RuntimePlan((), (f"the validator is already enabled, in {before.validator_in}",))
    section: dict[str, Any] = {}
    if not before.nri:
        section["enable_nri"] = True
    if not before.connections:
        section["nri_disable_connections"] = False
    section[crio.VALIDATOR] = {crio.ENABLE_VALIDATOR: True}
    head = _HEAD.format(runtime="CRI-O")
    content = (f"{head}\n" + "\n".join(toml_text.table(("crio", "nri"), section)) + "\n").encode()
    after = crio.nri_settings(crio.layers(config, Tree({path: content})))
    if not after.enforced:
        reason = f"{after.validator_in} is read later" if path in after.files else f"CRI-O does not read {path.parent}"
        raise NotUnderstood(f"{path} would have no effect: {reason}")
    return RuntimePlan((_file(path, content),), (UNTRIED,))


def _file(path: Path, content: bytes, *, owned: bool = True) -> PlannedFile:
    return PlannedFile(str(path), content, like=str(path), owned=owned)


def _drop_in_directory(config: Path, main: dict[str, Any]) -> Path:
    """The last directory of which containerd reads every file, because the last file decides."""
    for pattern in reversed(main.get("imports", [])):
        place = config.parent / str(pattern)
        if place.name in _WHOLE_DIRECTORY and "*" not in str(place.parent):
            return place.parent
    return config.parent / "conf.d"


def _containerd_drop_in(version: object, carried: dict[str, Any], before: NriSettings) -> bytes:
    """Only what is needed: a setting in the drop-in overrides the operator's own files."""
    section = dict(carried)
    if not before.nri:
        section["disable"] = False
    if not before.connections:
        section["disable_connections"] = False
    section[VALIDATOR] = {**section.get(VALIDATOR, {}), "enable": True}
    head = _HEAD.format(runtime="containerd")
    # Newer versions of containerd refuse a drop-in of a higher version than the main file's.
    head = f"{head}version = {version}\n\n" if version is not None else f"{head}\n"
    return (head + "\n".join(toml_text.table(("plugins", NRI), section)) + "\n").encode()


def _main(config: Path, raw: bytes | None, pattern: str) -> PlannedFile:
    if raw is None:
        return _file(config, toml_text.with_import(str(config), f"{_BY}{_NEW_MAIN}".encode(), pattern))
    first = raw[:2000].decode(errors="replace")
    if any(words in first for words in _GENERATED):
        raise NotUnderstood(
            f"{config} is generated by another program, which would overwrite a change; let that program add {pattern!r} to the "
            "list of imports, or name a directory that it already imports with --drop-in-directory"
        )
    return _file(config, toml_text.with_import(str(config), raw, pattern), owned=False)


def _require_effect(config: Path, files: list[PlannedFile], drop_in: Path) -> None:
    """Raise if a file that is read later overrides the drop-in, or if containerd does not read it at all."""
    read = containerd.layers(config, Tree({Path(file.path): file.content for file in files}))
    if containerd.nri_settings(read).enforced:
        return
    if drop_in not in read.paths:
        raise NotUnderstood(
            f"{read.stopped_at} is imported but does not exist, and containerd reads nothing after it: create it, or remove the "
            "import"
        )
    later = [str(path) for path in read.paths[read.paths.index(drop_in) + 1 :]]
    raise NotUnderstood(
        f"{' and '.join(later)} is read after {drop_in} and overrides it: remove disable, disable_connections and "
        f'{VALIDATOR}.enable from [plugins."{NRI}"] there'
    )
