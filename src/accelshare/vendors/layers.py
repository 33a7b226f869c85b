"""Merges profile files: `extends`, overriding between directories, and names that clash between profiles.

Belongs here: what several files mean together. Pure: the files were read before. Never: reading them (`catalog.py`), or rules
about one file (`validation.py`, `agreement.py`).
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from accelshare.vendors.problems import Problem, ProfileError, nearest, shown
from accelshare.vendors.profile import Profile
from accelshare.vendors.validation import out_of_bounds, parse, problems_of_part, unknown_keys


@dataclass(frozen=True, slots=True)
class ProfileFile:
    """One profile file: its name and its data."""

    file: str
    data: Mapping[str, object]

    @property
    def base(self) -> str | None:
        """The profile this file builds on."""
        value = self.data.get("extends")
        return value if isinstance(value, str) else None

    @property
    def name(self) -> str | None:
        """The profile this file defines: its own name, else that of the profile it extends, which it then replaces."""
        value = self.data.get("name", self.base)
        return value if isinstance(value, str) else None


@dataclass(frozen=True, slots=True)
class Survey:
    """The result of all files: the profiles in force by name, and every problem."""

    profiles: tuple[Profile, ...]
    problems: tuple[Problem, ...]


def survey(layers: Sequence[Sequence[ProfileFile]]) -> Survey:
    """Resolve all files. A later layer replaces a profile of an earlier one; in one layer a name is there once."""
    effective: dict[str, tuple[Profile, str]] = {}
    layers, problems = _within_bounds(layers)
    for depth, layer in enumerate(layers):
        first: dict[str, str] = {}
        for source in layer:
            profile, wrong = _made(source, layers, depth)
            problems.extend(wrong)
            if source.name in first:
                message = f"is {shown(source.name)}, and so is that of {first[source.name]}; a directory has one file per profile"
                problems.append(Problem(source.file, "name", message))
                continue
            if source.name is not None:
                first[source.name] = source.file
            if profile is not None:
                # Removed first, so that it is last in the order and clashes are reported at this file.
                effective.pop(profile.name, None)
                effective[profile.name] = (profile, source.file)
    problems.extend(_clashes(list(effective.values())))
    return Survey(tuple(effective[name][0] for name in sorted(effective)), tuple(problems))


def _within_bounds(layers: Sequence[Sequence[ProfileFile]]) -> tuple[list[list[ProfileFile]], list[Problem]]:
    """The files within the limits, and the problems of the others."""
    problems: list[Problem] = []
    kept: list[list[ProfileFile]] = []
    for layer in layers:
        kept.append([])
        for source in layer:
            wrong = list(out_of_bounds(source.data, file=source.file))
            problems.extend(wrong)
            if not wrong:
                kept[-1].append(source)
    return kept, problems


def merge(base: Mapping[str, object], over: Mapping[str, object]) -> dict[str, object]:
    """The base with single keys replaced; tables are merged key by key, and an empty text or list removes a key."""
    merged = dict(base)
    for key, value in over.items():
        if value in ("", []):
            merged.pop(key, None)
        elif isinstance(value, Mapping):
            under = merged.get(key)
            merged[key] = merge(under if isinstance(under, Mapping) else {}, value)
        else:
            merged[key] = value
    return merged


@dataclass(frozen=True, slots=True)
class _Resolved:
    """A file merged with everything it extends, and the problems of those files, which are reported there."""

    data: Mapping[str, object]
    reported: tuple[Problem, ...] = ()


def _made(source: ProfileFile, layers: Sequence[Sequence[ProfileFile]], depth: int) -> tuple[Profile | None, list[Problem]]:
    try:
        resolved = _resolve(source, layers, depth, (source,))
    except ProfileError as error:
        # Without its base a file is not complete, but its own keys can still be checked.
        return None, [*error.problems, *problems_of_part(merge({}, source.data), file=source.file)]
    problems: list[Problem] = []
    if source.base is not None:
        problems.extend(unknown_keys(source.data, file=source.file))
    try:
        profile = parse(resolved.data, file=source.file)
    except ProfileError as error:
        profile = None
        reported = {(problem.key, problem.message) for problem in (*resolved.reported, *problems)}
        problems.extend(problem for problem in error.problems if (problem.key, problem.message) not in reported)
    return profile, problems


def _resolve(
    source: ProfileFile, layers: Sequence[Sequence[ProfileFile]], depth: int, seen: tuple[ProfileFile, ...]
) -> _Resolved:
    if source.base is None:
        return _Resolved(source.data)
    # A file that replaces what it extends builds on the layers before; any other may also build on its own directory.
    visible = layers[:depth] if source.base == source.name else layers[: depth + 1]
    found = [(place, other) for place, layer in enumerate(visible) for other in layer if other.name == source.base]
    if not found:
        known = {other.name for layer in visible for other in layer if other.name is not None} - {source.name}
        message = f"is {shown(source.base)}; there is no such profile{nearest(source.base, sorted(known))}"
        raise ProfileError([Problem(source.file, "extends", message)])
    place, base = found[-1]
    if any(base is other for other in seen):
        circle = " → ".join(str(other.name) for other in (*seen, base))
        raise ProfileError([Problem(source.file, "extends", f"goes round in a circle: {circle}")])
    try:
        under = _resolve(base, layers, place, (*seen, base))
    except ProfileError as error:
        # Reported at the base's own file too; here it is the reason why this file cannot be merged.
        message = f"is {shown(source.base)}; that profile cannot be made either: {error.problems[0]}"
        raise ProfileError([Problem(source.file, "extends", message)]) from error
    own = {key: value for key, value in source.data.items() if key != "extends"}
    data = merge({key: value for key, value in under.data.items() if key != "extends"}, own)
    if "unverified" not in own and "unverified" in data:
        data["unverified"] = _still_unverified(data["unverified"], own)
    return _Resolved(data, (*under.reported, *_problems_of(replace(base, data=under.data))))


def _problems_of(source: ProfileFile) -> tuple[Problem, ...]:
    try:
        parse(source.data, file=source.file)
    except ProfileError as error:
        return error.problems
    return ()


def _still_unverified(doubts: object, own: Mapping[str, object]) -> object:
    """The unverified keys without those that the file sets itself."""
    if not isinstance(doubts, list):
        return doubts
    settled = [f"{key}." for key in _leaves(own)]
    return [doubt for doubt in doubts if not any(_one_within_other(f"{doubt}.", key) for key in settled)]


def _one_within_other(key: str, other: str) -> bool:
    return key.startswith(other) or other.startswith(key)


def _leaves(data: Mapping[str, object], above: str = "") -> Iterator[str]:
    for key, value in data.items():
        if isinstance(value, Mapping):
            yield from _leaves(value, f"{above}{key}.")
        else:
            yield above + key


def _clashes(profiles: Sequence[tuple[Profile, str]]) -> Iterator[Problem]:
    """Names that two profiles have; reported at the file that was read later."""
    claimed: dict[tuple[str, str], tuple[str, str]] = {}
    for profile, file in profiles:
        for what, key, value in _claims(profile):
            if (what, value) in claimed:
                other, other_file = claimed[what, value]
                message = (
                    f"is {shown(value)}, the {what} of profile {other} ({other_file}) already; each profile must have its own"
                )
                yield Problem(file, key, message)
            claimed.setdefault((what, value), (profile.name, file))


def _claims(profile: Profile) -> Iterator[tuple[str, str, str]]:
    """What must be one profile's alone, as (what, key, value): by these a pod, a call or an assignment finds its vendor."""
    for key, value in (
        ("resources.memory", profile.resources.memory),
        ("resources.count", profile.resources.count),
        ("resources.whole", profile.resources.whole),
    ):
        if value is not None:
            yield "resource", key, value
    if profile.http.prefix is not None:
        yield "url prefix", "http.prefix", profile.http.prefix
    for name in ("index", "card_size", "pod_units", "assigned", "assign_time"):
        value = getattr(profile.annotations, name)
        if value is not None:
            yield "annotation", f"annotations.{name}", value
