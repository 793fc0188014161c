"""A Singer target, written with the SDK: each record is sent by a `RecordSink`, over a session of requests.

The rows come from `singer_tap.py` by a pipe, as Singer has it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

import requests
from job import PATH, headers, mapping
from singer_sdk import RecordSink, Target
from singer_sdk import typing as th


class EventSink(RecordSink):
    def setup(self) -> None:
        super().setup()
        self.session = requests.Session()
        self.to_event = mapping(Path(self.config["folder"]))
        self.address = f"{self.config['url']}{PATH}"

    def process_record(self, record: dict[str, Any], context: Any) -> None:  # noqa: ARG002  # the SDK's signature
        self.session.post(self.address, json=self.to_event(record), headers=headers(record), timeout=30).raise_for_status()


class TargetEvents(Target):
    name = "target-events"
    default_sink_class = EventSink
    config_jsonschema: ClassVar[dict[str, Any]] = th.PropertiesList(
        th.Property("folder", th.StringType), th.Property("url", th.StringType)
    ).to_dict()


if __name__ == "__main__":
    TargetEvents.cli()
