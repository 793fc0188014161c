"""A mapping file as small as it may be, with columns ID, TITLE and START."""

from __future__ import annotations

from pathlib import Path

from mappings.spec.feed import FeedMapping
from mappings.yaml.loader import load_feed

CSV = "{kind: csv, path: events.csv}"
_FEED = """\
feed: %s
source: %s
key: [ID]
event:
  channelId: %s
  title: {from: TITLE}
  startAt: {from: START, do: [{iso: moment}]}
  timezone: Europe/Lisbon
  classifications: [music]
  approxLocation: {city: {placeId: lisboa}}
%s
"""


def feed(folder: Path, source: str = CSV, more: str = "", *, name: str = "town-hall", channel: str = "7") -> FeedMapping:
    """Write the mapping file of a feed, with more lines at its end, and load it."""
    (folder / f"{name}.yaml").write_text(_FEED % (name, source, channel, more), "utf-8")
    return load_feed(folder / f"{name}.yaml", folders=(folder.parent,))
