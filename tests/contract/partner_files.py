"""A partner invented for one test: a mapping file as text, files as bytes, and what a run over them gives."""

from __future__ import annotations

from pathlib import Path

from contract.feed_runs import outcomes_in

from mappings.outcome import RowOutcome
from mappings.yaml.loader import parse_feed

EVENT = """
  channelId: {channel: city-agenda}
  timezone: Europe/Lisbon
  classifications: [culture]
  approxLocation.city: {placeId: pt-lisboa, name: Lisboa, countryCode: PT}
"""
"""What every event says where the test is about something else; stands in a mapping's place of EVENT."""


def outcomes(folder: Path, mapping: str, files: dict[str, bytes]) -> list[RowOutcome]:
    for name, content in files.items():
        (folder / name).write_bytes(content)
    text = mapping.replace("\n  EVENT\n", EVENT)
    return outcomes_in(parse_feed(text, folder / "feed.yaml"), folder)
