"""The component that gives a `dg` project the feeds of a folder: `type: eventsync.FeedsComponent` in a `defs.yaml`.

No `from __future__ import annotations` here: Dagster reads the annotations of a component's attributes at run time.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import dagster as dg

from pipelines.orchestration.feeds import feeds_definitions
from pipelines.orchestration.layout import FeedTranslator

_FOLDER = "feeds"
_MAPPING = """\
# An example: `eventsync check FILE` checks it, `eventsync preview FILE` shows its events. With a `schedule:` it runs by itself.
feed: example
source: {kind: csv, path: example.csv}
key: [ID]
event:
  channelId: {channel: city-agenda}  # one of your key's channels
  title: {from: TITLE}
  startAt: {at: {day: {from: DAY, do: [{iso: date}]}, clock: {from: HOUR, do: [clock]}, zone: Europe/Lisbon}}
  timezone: Europe/Lisbon
  status: draft
  classifications: [music]
  approxLocation: {city: {placeId: lisboa}}
"""
_ROWS = "ID,TITLE,DAY,HOUR\n1,Opening night,2031-05-01,19:30\n"


class FeedsScaffolder(dg.Scaffolder[Any]):
    """Writes a `defs.yaml` and a folder with an example of a mapping file."""

    def scaffold(self, request: dg.ScaffoldRequest[Any]) -> None:
        """Write the files to the component's folder."""
        folder = request.target_path / _FOLDER
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "example.yaml").write_text(_MAPPING, "utf-8")
        (folder / "example.csv").write_text(_ROWS, "utf-8")
        dg.scaffold_component(request, {"folder": _FOLDER, "key_prefix": []})


@dg.scaffold_with(FeedsScaffolder)
@dataclass
class FeedsComponent(FeedTranslator, dg.Component, dg.Resolvable):
    """The feeds of a folder as assets, with their schedules, sensors and checks. `folder`: from that of the component.

    A subclass overrides `get_asset_spec` to give the assets other keys, groups, owners, tags, dependencies or conditions.
    """

    folder: str
    key_prefix: Sequence[str] = ()

    def build_defs(self, context: dg.ComponentLoadContext) -> dg.Definitions:
        """Return the definitions of the folder's feeds."""
        here = context.path if context.path.is_dir() else context.path.parent  # the file of a component that is made in Python
        return feeds_definitions(here / self.folder, key_prefix=self.key_prefix, translator=self)
