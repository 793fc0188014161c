"""Find the feeds and mapping files that a command's arguments name: by feed name, by path, or all of the folder; and shared
files.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from typing_extensions import TypedDict

from mappings.errors import ConfigError, FileProblem, MappingFileError
from mappings.reasons import did_you_mean
from mappings.spec.feed import FeedMapping
from mappings.yaml.includes import including, is_shared
from mappings.yaml.loader import SUFFIXES, FeedFolder, load_feed, load_folder
from pipelines.cli.output.console import counted
from pipelines.settings import Settings

_NAMED = 20
"""How many feeds a hint names."""


class BrokenFile(TypedDict):
    """A mapping file with mistakes, all of them listed."""

    path: Path
    problems: Sequence[FileProblem]


def broken_files(errors: Sequence[MappingFileError]) -> list[BrokenFile]:
    """Return broken mapping files for a JSON document, sorted by path."""
    ordered = sorted(errors, key=lambda error: error.path)
    return [BrokenFile(path=shown_path(error.path), problems=error.problems) for error in ordered]


def broken_lines(errors: Sequence[MappingFileError]) -> Iterator[str]:
    """Yield a line for people about each broken mapping file, sorted by path."""
    for one in broken_files(errors):
        path = one["path"]
        yield f"broken: {path} has {counted(len(one['problems']), 'mistake')}; `eventsync check {path}` shows them"


def folder_of(settings: Settings, wanted: Sequence[str] = ()) -> FeedFolder:
    """Load the folder of mapping files, broken files included.

    `wanted`: if all of these feeds are found under their names, no other file is loaded.

    Raises:
        ConfigError: the folder does not exist, or has no mapping file.
    """
    require_folder(settings)
    few = load_folder(settings.feeds, {*wanted, *map(_stem_of, wanted)}, folders=settings.files) if wanted else None
    if few and all(_found(few, name) for name in wanted):
        return few
    folder = load_folder(settings.feeds, folders=settings.files)
    if not folder.feeds and not folder.broken:
        raise ConfigError(f"{settings.feeds} holds no mapping file (*.yaml)", hint="`eventsync init SOURCE` writes a first one")
    return folder


def require_folder(settings: Settings) -> None:
    """Check that the folder of mapping files exists; it may be empty.

    Raises:
        ConfigError: it does not.
    """
    if not settings.feeds.is_dir():
        raise ConfigError(f"there is no folder {settings.feeds}", hint="set EVENTSYNC_FEEDS to the folder of your mapping files")


def chosen_feeds(folder: FeedFolder, wanted: Sequence[str]) -> tuple[FeedMapping, ...]:
    """Return the named feeds in that order, each once, or all feeds if none is named.

    Raises:
        MappingFileError: a named feed is broken.
        ConfigError: a named feed does not exist.
    """
    named = {mapping.feed: mapping for mapping in (_one(folder, name) for name in wanted)}
    return tuple(named.values()) if wanted else folder.feeds


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
    declares_feed = re.compile(rf"^feed:\s*['\"]?{re.escape(name)}['\"]?\s*(#.*)?$", re.MULTILINE)
    for broken in folder.broken:
        if broken.path.stem == _stem_of(name) or declares_feed.search(file_text(broken.path)):
            raise MappingFileError(broken.path, broken.problems)
    hint = did_you_mean(name, (str(mapping.feed) for mapping in folder.feeds)) or feeds_here(folder)
    raise ConfigError(f"there is no feed {name!r}", hint=hint)


def feeds_here(folder: FeedFolder) -> str:
    """Return a sentence with the names of the feeds of a folder, of the first twenty if there are more."""
    names = [str(mapping.feed) for mapping in folder.feeds]
    more = f", and {len(names) - _NAMED} more (`eventsync feeds` lists them)" if len(names) > _NAMED else ""
    return f"the feeds here: {', '.join(names[:_NAMED]) or 'none'}{more}"


def file_text(path: Path) -> str:
    """Return the text of a file, "" if it cannot be read."""
    try:
        return path.read_text("utf-8", "replace")
    except OSError:
        return ""


def named_mapping(settings: Settings, word: str) -> FeedMapping:
    """Load the mapping of a feed name or a file path.

    Raises:
        MappingFileError: the file is broken.
        ConfigError: there is no such feed or file.
    """
    path = Path(word)
    if is_file_name(word) and not path.is_file():
        beside = (str(one) for one in path.parent.glob("*") if one.suffix in SUFFIXES)
        hint = did_you_mean(word, beside) or "a relative path starts at the working folder"
        raise ConfigError(f"there is no file {word}", hint=hint)
    return _load(settings, word)


def _load(settings: Settings, word: str) -> FeedMapping:
    return load_feed(Path(word), folders=settings.files) if is_file_name(word) else one_feed(settings, word)


def is_file_name(word: str) -> bool:
    """Return whether an argument means a file: it has the suffix of one and either exists or contains a folder."""
    path = Path(word)
    return path.suffix in SUFFIXES and (path.is_file() or path.name != word)


def mapping_or_error(settings: Settings, word: str) -> FeedMapping | MappingFileError:
    """Load the mapping of a feed name or a file path; return a broken or missing file as its error.

    Raises:
        ConfigError: there is no such feed.
    """
    try:
        return _load(settings, word)
    except MappingFileError as error:
        return error


def shown_path(path: Path) -> Path:
    """Return a path relative to the working folder, if it is inside."""
    cwd = Path.cwd()
    return path.relative_to(cwd) if path.is_relative_to(cwd) else path


@dataclass(frozen=True, slots=True)
class SharedFile:
    """A named file that is not a feed, and the feed files that include it, at least one."""

    path: str
    included_by: tuple[str, ...]


def shared_file(settings: Settings, word: str) -> SharedFile | None:
    """Return the shared file that an argument names, with the feeds that include it; None if it names no shared file.

    Feeds are searched beside the file and in the configured folder.

    Raises:
        ConfigError: no feed includes it.
    """
    path = Path(word)
    if path.suffix not in SUFFIXES or not path.is_file() or not is_shared(path):
        return None
    beside = (one for folder in dict.fromkeys((path.parent, settings.feeds)) for one in sorted(folder.glob("*")))
    found = {feed.resolve(): str(feed) for feed in reversed(including(path, (one for one in beside if one.suffix in SUFFIXES)))}
    if not found:
        message = f"{word} is not a feed, and no feed beside it or in {settings.feeds} includes it"
        raise ConfigError(message, hint=f"include it in a feed with `include: [{path.name}]`, and check that feed")
    return SharedFile(word, tuple(reversed(found.values())))
