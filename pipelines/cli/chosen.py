"""Which feeds a command means: those named, or all; a name that is not there gets the nearest one as a hint."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from rapidfuzz import process

from mappings.errors import ConfigError, MappingFileError
from mappings.yaml.loader import SUFFIXES, FeedFolder, LoadedFeed, load_folder
from pipelines.settings import Settings


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
    """Check that there is a folder of mapping files, whatever is in it.

    Raises:
        ConfigError: there is none.
    """
    if not settings.feeds.is_dir():
        raise ConfigError(f"there is no folder {settings.feeds}", hint="set EVENTSYNC_FEEDS to the folder of your mapping files")


def chosen_feeds(folder: FeedFolder, wanted: Sequence[str]) -> tuple[LoadedFeed, ...]:
    """Return the feeds that are named, in that order; all of them if none is.

    Raises:
        MappingFileError: one that is named is broken.
        ConfigError: one that is named does not exist.
    """
    if not wanted:
        return folder.feeds
    return tuple(_one(folder, name) for name in wanted)


def _is_called(path: Path, name: str) -> bool:
    """Whether a file that cannot be loaded says that it is the feed of this name."""
    try:
        text = path.read_text("utf-8", "replace")
    except OSError:
        return False
    return re.search(rf"^feed:\s*['\"]?{re.escape(name)}['\"]?\s*(#.*)?$", text, re.MULTILINE) is not None


def _stem_of(name: str) -> str:
    return Path(name).stem if name.endswith(SUFFIXES) else name


def _found(folder: FeedFolder, name: str) -> LoadedFeed | None:
    stem = _stem_of(name)
    return next((feed for feed in folder.feeds if stem in {feed.mapping.feed, feed.path.stem}), None)


def _one(folder: FeedFolder, name: str) -> LoadedFeed:
    found, stem = _found(folder, name), _stem_of(name)
    if found is not None:
        return found
    for broken in folder.broken:
        if broken.path.stem == stem or _is_called(broken.path, name):
            raise MappingFileError(broken.path, broken.problems)
    names = [str(feed.mapping.feed) for feed in folder.feeds]
    nearest = process.extractOne(name, names, score_cutoff=60)
    hint = f"did you mean {nearest[0]}?" if nearest else "the feeds here: " + (", ".join(names) or "none")
    raise ConfigError(f"there is no feed {name!r}", hint=hint)
