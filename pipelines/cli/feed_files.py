"""One mapping file by a person's word: the path of a file, or the name of a feed in the configured folder.

Which feeds a run means is `chosen`'s.
"""

from __future__ import annotations

from pathlib import Path

from mappings.errors import ConfigError, MappingFileError
from mappings.refusals import did_you_mean
from mappings.spec.feed import FeedMapping
from mappings.yaml.loader import SUFFIXES, load_feed
from pipelines.cli.chosen import chosen_feeds, folder_of
from pipelines.settings import Settings


def is_file_name(word: str) -> bool:
    """Whether a word can only mean a file: it ends like one and one is there, or it names a folder on the way."""
    path = Path(word)
    return path.suffix in SUFFIXES and (path.is_file() or path.name != word)


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
    return _loaded(settings, word)


def _loaded(settings: Settings, word: str) -> FeedMapping:
    if is_file_name(word):
        return load_feed(Path(word))
    return chosen_feeds(folder_of(settings, [word]), [word])[0].mapping


def every_mapping(settings: Settings) -> list[FeedMapping | MappingFileError]:
    """Load every mapping file of the configured folder, in the order of their paths; a broken one as its error.

    Raises:
        ConfigError: there is no such folder, or no mapping file in it.
    """
    folder = folder_of(settings)
    loaded: list[FeedMapping | MappingFileError] = [*(feed.mapping for feed in folder.feeds), *folder.broken]
    return sorted(loaded, key=lambda one: one.path)


def mapping_or_error(settings: Settings, word: str) -> FeedMapping | MappingFileError:
    """Load the mapping that a person names; a broken one is returned as its error.

    Raises:
        ConfigError: there is no such feed.
    """
    try:
        return _loaded(settings, word)
    except MappingFileError as error:
        return error


def shown_path(path: Path) -> Path:
    """Return a path as people write it here: from the working folder, where it is inside."""
    cwd = Path.cwd()
    return path.relative_to(cwd) if path.is_relative_to(cwd) else path
