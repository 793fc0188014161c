"""Files that a person names among feeds, and that are there to be included: told as such, with the feeds that include them.

How an included file joins a feed is `mappings.includes`'s.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from mappings.errors import ConfigError
from mappings.yaml.includes import including, is_shared
from mappings.yaml.loader import SUFFIXES
from pipelines.settings import Settings


@dataclass(frozen=True, slots=True)
class SharedFile:
    """A file that was named, and the feed files that include it: one at least."""

    path: str
    included_by: tuple[str, ...]

    def __str__(self) -> str:
        """Say what it is."""
        return f"{self.path} is no feed but a file to be included, by {', '.join(self.included_by)}"


def shared_file(settings: Settings, word: str) -> SharedFile | None:
    """Return what a word means where that is a file to be included; None where it is anything else.

    Feeds are looked for beside the file, and in the configured folder.

    Raises:
        ConfigError: no feed includes it.
    """
    path = Path(word)
    if path.suffix not in SUFFIXES or not path.is_file() or not is_shared(path):
        return None
    folders = dict.fromkeys((path.parent, settings.feeds))
    found = including(path, (feed for folder in folders for feed in sorted(folder.glob("*")) if feed.suffix in SUFFIXES))
    feeds = {feed.resolve(): str(feed) for feed in reversed(found)}
    if not feeds:
        told = f"{word} is no feed but a file to be included, and no feed beside it or in {settings.feeds} includes it"
        raise ConfigError(told, hint=f"a feed includes it by `include: [{path.name}]`, and is checked with it")
    return SharedFile(word, tuple(reversed(feeds.values())))
