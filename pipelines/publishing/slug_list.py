"""The list of classifications as it was, beside what it is now: what is gone, what is new, and what this feed loses by it.

The list itself is asked for by `service`; a row that names a slug which is gone is the mapper's to reject.
"""

from __future__ import annotations

from dataclasses import dataclass

from pydantic import TypeAdapter, ValidationError

from connectors.event_api.listing import Classifications
from mappings.lint.soundness import outgoing_of
from mappings.refusals import nearest
from mappings.spec.feed import FeedMapping
from mappings.vocabulary import FeedName
from state.notes import ServiceNotes

_SHOWN = 8
_LIST = TypeAdapter(Classifications)


@dataclass(frozen=True, slots=True)
class ListChange:
    """Two states of the list. `lost`: slugs that this feed's mapping names and the list has no more."""

    before: str
    now: str
    gone: tuple[str, ...]
    new: tuple[str, ...]
    lost: tuple[str, ...]

    def __str__(self) -> str:
        versions = f"from {self.before} to {self.now}" if self.before != self.now else f"and is still called {self.now}"
        parts = [f"gone: {', '.join(self._gone())}" if self.gone else "", f"new: {_some(self.new)}" if self.new else ""]
        lost = f"this mapping names {_some(self.lost)}: such rows are rejected until it is mended" if self.lost else ""
        return "; ".join(filter(None, (f"the list of classifications changed {versions}", *parts, lost)))

    def _gone(self) -> list[str]:
        """Name what is gone, each with the new slug that it may have become."""
        named = [(slug, nearest(slug, self.new)) for slug in self.gone[:_SHOWN]]
        told = [f"{slug} (now {near}?)" if near else slug for slug, near in named]
        return told if len(self.gone) <= _SHOWN else [*told, f"and {len(self.gone) - _SHOWN} more"]


class ListMemory:
    """What the runs at one destination have seen of the list: every version once, and for each feed what it was told last."""

    def __init__(self, notes: ServiceNotes) -> None:
        self._notes = notes

    def version(self, version: str) -> Classifications | None:
        """Return the list of a version, None if no run ever met it."""
        return self._read(f"classifications of {version}")

    def told(self, feed: FeedName) -> Classifications | None:
        """Return the list as a feed's last run met it, None if none did."""
        return self._read(f"classifications told to {feed}")

    def note(self, mapping: FeedMapping, now: Classifications) -> ListChange | None:
        """Remember the list as this run met it, and return how it changed since the feed's last run; written only if it did."""
        before = self.told(mapping.feed)
        if before == now:
            return None
        for name in (f"classifications told to {mapping.feed}", f"classifications of {now.version}"):
            self._notes.write(name, _LIST.dump_json(now, ensure_ascii=True).decode("ascii"))
        return None if before is None else change_between(before, now, mapping)

    def _read(self, name: str) -> Classifications | None:
        kept = self._notes.read(name)
        try:
            return None if kept is None else _LIST.validate_json(kept)
        except ValidationError:  # written by another version
            return None


def change_between(before: Classifications, now: Classifications, mapping: FeedMapping) -> ListChange:
    """Return how the list differs, as far as it concerns a mapping."""
    named = named_slugs(mapping)
    return ListChange(
        before=before.version,
        now=now.version,
        gone=tuple(sorted(before.slugs - now.slugs)),
        new=tuple(sorted(now.slugs - before.slugs)),
        lost=tuple(sorted(named - now.slugs)),
    )


def named_slugs(mapping: FeedMapping) -> frozenset[str]:
    """Return the slugs that a mapping can give, none where rows decide."""
    sent = outgoing_of(mapping).fields.get("classifications")
    values = sent.item.values if sent and sent.item else None
    return frozenset(str(value) for value in values or ())


def _some(slugs: tuple[str, ...]) -> str:
    shown = ", ".join(slugs[:_SHOWN])
    return f"{shown} and {len(slugs) - _SHOWN} more" if len(slugs) > _SHOWN else shown
