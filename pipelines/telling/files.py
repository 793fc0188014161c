"""Mapping files that cannot be used, as somebody should be told of them: whose feed it is, as far as can still be read.

What is wrong with a file is the loader's to say; who is told, and when, is `notices`'.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from mappings.errors import MappingFileError
from mappings.spec.feed import Schedule
from mappings.vocabulary import FeedName
from mappings.yaml.loader import readable_document
from pipelines.telling.causes import Cause, Concern


class Owned(Protocol):
    """What somebody may be told of: a feed's mapping, or a file that should be one."""

    @property
    def feed(self) -> FeedName:
        """Under which name it is told of."""
        ...

    @property
    def owner(self) -> str:
        """Whose it is, "" where that is not said."""
        ...

    @property
    def notify(self) -> Sequence[str]:
        """The channels that hear of it as well."""
        ...

    @property
    def schedule(self) -> Schedule | None:
        """When it should run by itself, None where it does not, or where that cannot be known."""
        ...


@dataclass(frozen=True, slots=True)
class FileOfFeed:
    """A mapping file by what can still be read of it."""

    feed: FeedName
    owner: str = ""
    notify: tuple[str, ...] = ()
    schedule: Schedule | None = None


def broken_files(errors: Collection[MappingFileError], taken: Collection[str]) -> Iterator[tuple[FileOfFeed, Concern]]:
    """Yield each file that cannot be used, and what there is to tell of it. `taken`: the feeds that are sound, whose names
    another file may claim by mistake.
    """
    for error in errors:
        document = readable_document(error.path)
        name = document.get("feed")
        is_named = isinstance(name, str) and bool(name.strip()) and name not in taken
        called = FeedName(str(name) if is_named else error.path.name)
        owner, notify = document.get("owner"), document.get("notify")
        channels = notify if isinstance(notify, list) else [notify]
        file = FileOfFeed(called, owner if isinstance(owner, str) else "", tuple(one for one in channels if isinstance(one, str)))
        first, more = error.problems[0] if error.problems else error, len(error.problems) - 1
        told = f"its mapping file cannot be used: {first}{f' (and {more} more)' if more > 0 else ''}"
        yield file, Concern(Cause.FILE, told, error.hint)
