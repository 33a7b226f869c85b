"""The catalog of profiles: the shipped ones and those of extra directories, by name or resource.

Belongs here: reading profile files, and looking profiles up. Never: what files mean together (`layers.py`).
"""

import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final, Literal

from accelshare.vendors.layers import ProfileFile, survey
from accelshare.vendors.problems import Problem, ProfileError, UnknownProfile
from accelshare.vendors.profile import Profile
from accelshare.vendors.validation import parse_shipped

# What a resource requests: a slice of a card's memory, or whole cards.
Requested = Literal["memory", "whole"]
# Not importlib.resources: it would add 7 ms to every `inspect`.
MOST_BYTES: Final = 256 * 1024
LONGEST_LINE: Final = 4096  # tomllib takes minutes for a key of 100,000 dots
SHIPPED: Final = Path(__file__).parent / "profiles"


@dataclass(frozen=True, slots=True)
class Catalog:
    """The profiles in force, ordered by name."""

    profiles: tuple[Profile, ...]
    _by_name: dict[str, Profile] = field(init=False, repr=False, compare=False)
    _by_resource: dict[str, tuple[Profile, Requested]] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        # Looked up for every resource of every pod, hence dicts; a frozen value is set through its base class.
        profiles = tuple(sorted(self.profiles, key=lambda profile: profile.name))
        resources: dict[str, tuple[Profile, Requested]] = {}
        for profile in profiles:
            if profile.resources.memory is not None:
                resources[profile.resources.memory] = (profile, "memory")
            if profile.resources.whole is not None:
                resources[profile.resources.whole] = (profile, "whole")
        object.__setattr__(self, "profiles", profiles)
        object.__setattr__(self, "_by_name", {profile.name: profile for profile in profiles})
        object.__setattr__(self, "_by_resource", resources)

    def __getitem__(self, name: str) -> Profile:
        try:
            return self._by_name[name]
        except KeyError:
            raise UnknownProfile(name, self._by_name) from None

    def __contains__(self, name: object) -> bool:
        return name in self._by_name

    def __iter__(self) -> Iterator[Profile]:
        return iter(self.profiles)

    def __len__(self) -> int:
        return len(self.profiles)

    def by_resource(self, name: str) -> tuple[Profile, Requested] | None:
        """The profile of this resource, and what it requests; None if no profile has it."""
        return self._by_resource.get(name)


def load(directories: Iterable[Path] = ()) -> Catalog:
    """The shipped profiles and these directories, of which the last takes precedence; ProfileError with all problems."""
    directories = tuple(directories)
    layers, unread = read_layers(directories)
    if not directories and not unread:
        return Catalog(tuple(parse_shipped(source.data) for layer in layers for source in layer))
    found = survey(layers)
    if unread or found.problems:
        raise ProfileError((*unread, *found.problems))
    return Catalog(found.profiles)


def load_usable(directories: Iterable[Path] = ()) -> tuple[Catalog, dict[str, str]]:
    """The profiles without problems, and the problems of the others by name.

    A profile whose own file has problems is not replaced by the shipped one of its name: that would serve other names than asked.
    ProfileError if a directory cannot be read at all.
    """
    directories = tuple(directories)
    layers, unread = read_layers(directories)
    if unreadable := [problem for problem in unread if problem.file in map(str, directories)]:
        raise ProfileError(unreadable)
    found = survey(layers)
    names = {source.file: source.name for layer in layers for source in layer}
    broken: dict[str, list[str]] = {}
    for problem in (*unread, *found.problems):
        broken.setdefault(names.get(problem.file) or Path(problem.file).stem, []).append(str(problem))
    usable = tuple(profile for profile in found.profiles if profile.name not in broken)
    return Catalog(usable), {name: "; ".join(problems) for name, problems in broken.items()}


def extended(known: Catalog, place: str, texts: Mapping[str, str], directories: Iterable[Path]) -> tuple[Catalog, list[Problem]]:
    """The shipped profiles, over them these texts of a place that is not a directory, over them the directories.

    A profile with problems stays as `known` has it, so that a broken text hides no cards that are known without it.
    """
    layers, problems = read_layers(directories)
    sources, wrong = read_texts(place, texts)
    layers.insert(1, sources)
    found = survey(layers)
    problems += [*wrong, *found.problems]
    names = {source.file: source.name for layer in layers for source in layer}
    broken = {names.get(problem.file) for problem in problems}
    usable = {profile.name: profile for profile in found.profiles if profile.name not in broken}
    return Catalog(tuple({**{profile.name: profile for profile in known}, **usable}.values())), problems


def read_layers(directories: Iterable[Path]) -> tuple[list[list[ProfileFile]], list[Problem]]:
    """The files of the shipped directory and of each extra one, as layers; and the problems of reading them."""
    layers: list[list[ProfileFile]] = []
    problems: list[Problem] = []
    candidate_paths: list[list[tuple[str, Path]]] = [[(file.name, file) for file in SHIPPED.iterdir()]]
    for directory in directories:
        if not directory.is_dir():
            problems.append(Problem(str(directory), "", "is no directory; it must be one with profile files (*.toml)"))
            continue
        candidate_paths.append([(str(file), file) for file in directory.iterdir()])
    for place in candidate_paths:
        sources, wrong = read_files(sorted((name, file) for name, file in place if _is_profile_file(file.name)))
        layers.append(sources)
        problems.extend(wrong)
    return layers, problems


def read_files(named: Iterable[tuple[str, Path]]) -> tuple[list[ProfileFile], list[Problem]]:
    """Each file as data, under its name in problems."""
    return _parsed((name, partial(_content, file)) for name, file in named)


def read_texts(place: str, texts: Mapping[str, str]) -> tuple[list[ProfileFile], list[Problem]]:
    """Each text as data, by the same rules as a file of its name."""
    return _parsed((f"{place}, {name}", text.encode) for name, text in sorted(texts.items()) if _is_profile_file(name))


def _parsed(named: Iterable[tuple[str, Callable[[], bytes]]]) -> tuple[list[ProfileFile], list[Problem]]:
    sources: list[ProfileFile] = []
    problems: list[Problem] = []
    for name, content in named:
        try:
            sources.append(ProfileFile(name, tomllib.loads(_text(content()))))
        except OSError as error:
            problems.append(Problem(name, "", f"cannot be read: {error.strerror}"))
        except (UnicodeDecodeError, UnicodeEncodeError) as error:
            problems.append(Problem(name, "", f"is not UTF-8 text: {error.reason} at byte {error.start}"))
        except tomllib.TOMLDecodeError as error:
            problems.append(Problem(name, "", f"is not TOML: {error}"))
        except RecursionError:
            problems.append(Problem(name, "", "is nested too deep; a profile's tables and lists are not"))
        except ValueError as error:  # thousands of digits, or more bytes than a profile has
            problems.append(Problem(name, "", f"cannot be read: {error}"))
    return sources, problems


def _content(file: Path) -> bytes:
    with file.open("rb") as stream:
        return stream.read(MOST_BYTES + 1)


def _text(content: bytes) -> str:
    if len(content) > MOST_BYTES:
        raise ValueError(f"it has more than {MOST_BYTES} bytes; a profile has fewer")
    text = content.decode("utf-8")
    if max(map(len, text.split("\n"))) > LONGEST_LINE:
        raise ValueError(f"a line has more than {LONGEST_LINE} characters; a profile's lines are shorter")
    return text


def _is_profile_file(name: str) -> bool:
    # Editors leave hidden files behind, and a mounted ConfigMap has hidden directories.
    return name.endswith(".toml") and not name.startswith(".")
