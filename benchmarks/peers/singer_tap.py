"""A Singer tap, written with the SDK, that emits the rows of the CSV.

What becomes of them is `singer_target.py`'s.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any, ClassVar

from job import Cells, read
from singer_sdk import Stream, Tap
from singer_sdk import typing as th

COLUMNS = (
    *("id", "title", "category", "first", "opens", "last", "closes", "country", "city", "venue", "link", "price", "state"),
    *("organiser", "edited"),
)


class Rows(Stream):
    name = "events"
    primary_keys = ("id",)
    schema: ClassVar[dict[str, Any]] = th.PropertiesList(*(th.Property(name, th.StringType) for name in COLUMNS)).to_dict()

    def get_records(self, context: Any) -> Iterable[Cells]:  # noqa: ARG002  # the SDK's signature
        return read(Path(self.config["folder"]))


class TapRows(Tap):
    name = "tap-rows"
    config_jsonschema: ClassVar[dict[str, Any]] = th.PropertiesList(th.Property("folder", th.StringType)).to_dict()

    def discover_streams(self) -> list[Stream]:
        return [Rows(self)]


if __name__ == "__main__":
    TapRows.cli()
