"""Which feeds and mapping files a command means: by a feed's name, by a path, or all of the folder; and files to be included."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from typing_extensions import TypedDict

from mappings.errors import ConfigError, FileProblem, MappingFileError
from mappings.reasons import did_you_mean
from mappings.spec.feed import FeedMapping
from mappings.yaml.includes import including, is_shared
from mappings.yaml.loader import SUFFIXES, FeedFolder, load_feed, load_folder
from pipelines.settings import Settings


class BrokenFile(TypedDict):
    """A mapping file that cannot be used, with every mistake."""

    path: Path
    problems: Sequence[FileProblem]


def broken_files(errors: Sequence[MappingFileError]) -> list[BrokenFile]:
    """Return broken mapping files as scripts read them, by their paths."""
    ordered = sorted(errors, key=lambda error: error.path)
    return [BrokenFile(path=shown_path(error.path), problems=error.problems) for error in ordered]


def folder_of(settings: Settings, wanted: Sequence[str] = ()) -> FeedFolder:
    """Load the folder of mapping files; broken files are part of what is returned.

    `wanted`: what a person names, if nothing else is needed. As long as these are there, other files are left alone.

    Raises:
        ConfigError: there is no such folder, or no mapping file in it.
    """
    require_folder(settings)
    few = load_folder(settings.feeds, {*wanted, *map(_stem_of, wanted)}) if wanted else None
    if few and all(_found(few, name) for name in wanted):
        return few
    folder = load_folder(settings.feeds)
    if not folder.feeds and not folder.broken:
        raise ConfigError(f"{settings.feeds} holds no mapping file (*.yaml)", hint="`eventsync check` tells how one is written")
    return folder


def require_folder(settings: Settings) -> None:
    """Check that there is a folder of mapping files, even an empty one.

    Raises:
        ConfigError: there is none.
    """
    if not settings.feeds.is_dir():
        raise ConfigError(f"there is no folder {settings.feeds}", hint="set EVENTSYNC_FEEDS to the folder of your mapping files")


def chosen_feeds(folder: FeedFolder, wanted: Sequence[str]) -> tuple[FeedMapping, ...]:
    """Return the feeds that are named, in that order; all of them if none is.

    Raises:
        MappingFileError: one that is named is broken.
        ConfigError: one that is named does not exist.
    """
    return tuple(_one(folder, name) for name in wanted) if wanted else folder.feeds


def one_feed(settings: Settings, name: str) -> FeedMapping:
    """Load one feed of the configured folder.

    Raises:
        MappingFileError: it is broken.
        ConfigError: it does not exist.
    """
    return _one(folder_of(settings, [name]), name)


def _stem_of(name: str) -> str:
    return Path(name).stem if name.endswith(SUFFIXES) else name


def _found(folder: FeedFolder, name: str) -> FeedMapping | None:
    stem = _stem_of(name)
    return next((mapping for mapping in folder.feeds if stem in {mapping.feed, mapping.path.stem}), None)


def _one(folder: FeedFolder, name: str) -> FeedMapping:
    if found := _found(folder, name):
        return found
    says_so = re.compile(rf"^feed:\s*['\"]?{re.escape(name)}['\"]?\s*(#.*)?$", re.MULTILINE)
    for broken in folder.broken:
        if broken.path.stem == _stem_of(name) or says_so.search(file_text(broken.path)):
            raise MappingFileError(broken.path, broken.problems)
    names = [str(mapping.feed) for mapping in folder.feeds]
    hint = did_you_mean(name, names) or "the feeds here: " + (", ".join(names) or "none")
    raise ConfigError(f"there is no feed {name!r}", hint=hint)


def file_text(path: Path) -> str:
    """Return what is in a file, "" where it cannot be read."""
    try:
        return path.read_text("utf-8", "replace")
    except OSError:
        return ""


def named_mapping(settings: Settings, word: str) -> FeedMapping:
    """Load the mapping that a person names.

    Raises:
        MappingFileError: it is broken.
        ConfigError: there is no such feed or file.
    """
    path = Path(word)
    if is_file_name(word) and not path.is_file():
        beside = (str(one) for one in path.parent.glob("*") if one.suffix in SUFFIXES)
        hint = did_you_mean(word, beside) or "a path starts at the folder in which the command runs"
        raise ConfigError(f"there is no file {word}", hint=hint)
    return _load(settings, word)


def _load(settings: Settings, word: str) -> FeedMapping:
    return load_feed(Path(word)) if is_file_name(word) else one_feed(settings, word)


def is_file_name(word: str) -> bool:
    """Whether a word can only mean a file: it ends like one and one is there, or it names a folder on the way."""
    path = Path(word)
    return path.suffix in SUFFIXES and (path.is_file() or path.name != word)


def mapping_or_error(settings: Settings, word: str) -> FeedMapping | MappingFileError:
    """Load the mapping that a person names; a broken one, or a file that is not there, is returned as its error.

    Raises:
        ConfigError: there is no such feed.
    """
    try:
        return _load(settings, word)
    except MappingFileError as error:
        return error


def shown_path(path: Path) -> Path:
    """Return a path as people write it here: from the working folder, where it is inside."""
    cwd = Path.cwd()
    return path.relative_to(cwd) if path.is_relative_to(cwd) else path


@dataclass(frozen=True, slots=True)
class SharedFile:
    """A file that was named, and the feed files that include it: one at least."""

    path: str
    included_by: tuple[str, ...]


def shared_file(settings: Settings, word: str) -> SharedFile | None:
    """Return what a word means where that is a file to be included; None where it is anything else.

    Feeds are looked for beside the file, and in the configured folder.

    Raises:
        ConfigError: no feed includes it.
    """
    path = Path(word)
    if path.suffix not in SUFFIXES or not path.is_file() or not is_shared(path):
        return None
    beside = (one for folder in dict.fromkeys((path.parent, settings.feeds)) for one in sorted(folder.glob("*")))
    found = {feed.resolve(): str(feed) for feed in reversed(including(path, (one for one in beside if one.suffix in SUFFIXES)))}
    if not found:
        message = f"{word} is no feed but a file to be included, and no feed beside it or in {settings.feeds} includes it"
        raise ConfigError(message, hint=f"a feed includes it by `include: [{path.name}]`, and is checked with it")
    return SharedFile(word, tuple(reversed(found.values())))
