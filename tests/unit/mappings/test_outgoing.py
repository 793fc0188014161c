"""What the payloads of a feed can be, as its file shows: never less than what its rows then become."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson
import pytest

from connectors.sources.catalogue import open_source
from mappings.compiler.mapper import compile_with_problems
from mappings.event import Directory
from mappings.outcome import MappedRow
from mappings.outgoing import Outgoing, outgoing_of
from mappings.yaml.loader import load_feed

ROOT = Path(__file__).parents[3]
FEEDS = sorted([*(ROOT / "mappings" / "feeds").glob("*.yaml"), *(ROOT / "tests" / "feeds").glob("[!_]*.yaml")])
_KINDS: dict[type, str] = {int: "integer", float: "number", str: "string", list: "array", dict: "object"}
FEED = """\
feed: one
source: {kind: csv, path: one.csv}
key: [ID]
let:
  place: {from: PLACE, do: [{lookup: places.csv}], on_empty: omit}
extra: [seats, tags, stage, hall]
event:
  channelId: "7"
  title: {from: TITLE, do: [collapse, {truncate: 60}]}
  startAt: {from: START, do: [{datetime: "%Y-%m-%dT%H:%M:%S%z"}]}
  timezone: {choose: [{when: {column: ZONE, equals: lisbon}, then: Europe/Lisbon}], otherwise: UTC}
  classifications: [{from: KIND, do: [{map: {c: music, p: theatre}, on_miss: {use: culture}}]}, festival]
  approxLocation.city.placeId: $place
  approxLocation.city.countryCode: PT
  seats: {from: SEATS, do: [{number: "."}], on_error: omit}
  tags: {from: TAGS, do: [{split: ","}, lower]}
  stage: {from: STAGE, on_empty: draft}
  hall: {from: HALL, do: [{map: {A: Main}}], on_empty: warn}
"""


def test_constants_lookups_and_bounds_are_known_before_any_row_is_read(tmp_path: Path) -> None:
    (tmp_path / "one.yaml").write_text(FEED, "utf-8")
    (tmp_path / "places.csv").write_text("place,id\nLisboa,lx\nPorto,opo\n", "utf-8")
    fields = outgoing_of(load_feed(tmp_path / "one.yaml")).fields
    assert fields["channelId"].values == {7}
    assert (fields["title"].values, fields["title"].longest) == (None, 60)
    assert fields["timezone"].values == {"Europe/Lisbon", "UTC"}
    classifications = fields["classifications"].item
    assert classifications is not None
    assert classifications.values == {"music", "theatre", "culture", "festival"}
    city = fields["approxLocation"].fields["city"].fields
    assert {name: one.values for name, one in city.items()} == {"placeId": {"lx", "opo"}, "countryCode": {"PT"}}
    assert not any(fields[name].is_always for name in ("seats", "stage", "hall"))
    assert city["placeId"].is_always
    assert (fields["seats"].kind, fields["tags"].kind) == ("number", "array")


def _holds(sent: Outgoing, value: Any, path: str = "") -> None:
    """Hold a payload that a row became against what was foretold of it."""
    assert sent.kind in {None, _KINDS[type(value)]}, path
    if sent.values is not None and not isinstance(value, dict | list):
        assert value in sent.values, path
    if sent.longest is not None and isinstance(value, str):
        assert len(value) <= sent.longest, path
    if isinstance(value, dict):
        assert value.keys() <= sent.fields.keys(), path
        assert {name for name, one in sent.fields.items() if one.is_always} <= value.keys(), path
        for name, inner in value.items():
            _holds(sent.fields[name], inner, f"{path}.{name}")
    if isinstance(value, list):
        assert sent.item is not None, path
        for inner in value:
            _holds(sent.item, inner, f"{path}[]")


@pytest.mark.parametrize("path", FEEDS, ids=lambda path: path.stem)
def test_every_row_of_the_feeds_we_have_is_as_it_was_foretold(path: Path) -> None:
    mapping = load_feed(path)
    sent = outgoing_of(mapping)
    mapper = compile_with_problems(mapping, Directory())[0]
    events = 0
    with open_source(mapping.source, mapping.path.parent, mapper.columns).read() as reading:
        for row in reading.rows:
            outcome = mapper(row)
            if isinstance(outcome, MappedRow):
                events += 1
                _holds(sent, orjson.loads(outcome.body))
    assert events or path.stem.startswith("sf-campaign-tree")  # whose rows have no day
