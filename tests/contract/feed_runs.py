"""A feed's whole file mapped as a run would, offline, and what became of it counted. What must come of it is the tests'."""

from __future__ import annotations

import re
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import orjson

from connectors.sources.catalogue import open_source
from mappings.compiler.mapper import compile_feed
from mappings.event import Directory
from mappings.outcome import MappedRow, Rejection, RowOutcome, Skipped, if_unknown
from mappings.reasons import Reason, ReasonCode
from mappings.spec.feed import FeedMapping
from mappings.yaml.loader import load_feed

ROOT = Path(__file__).parents[2]
SHIPPED = ROOT / "mappings" / "feeds"
REAL = ROOT / "tests" / "feeds"
REAL_FEEDS = sorted(REAL.glob("[!_]*.yaml"))
SLUGS = frozenset(
    re.findall(
        r"\w+",
        "music workshop culture theatre film festival exhibition dance family sport literature comedy talk tech food market"
        " tour nightlife opera classical",
    )
)
AS_OF = datetime(2026, 3, 1, tzinfo=UTC)
CHANNELS = {"city-agenda": 1, "krakow-culture": 2, "osaka-fireworks": 3}


class Accounts(NamedTuple):
    """`rejected` counts rejected rows; `codes` what they were rejected for, once a row and code."""

    events: int
    keys: int
    rejected: int
    skipped: dict[str, int]
    codes: dict[str, int]
    rows: int


def outcomes_of(path: Path) -> list[RowOutcome]:
    return outcomes_in(load_feed(path), path.parent)


def outcomes_in(mapping: FeedMapping, folder: Path) -> list[RowOutcome]:
    mapper = compile_feed(mapping, Directory(CHANNELS, SLUGS), AS_OF)
    with open_source(mapping.source, folder, mapper.columns).read() as reading:
        return list(map(if_unknown, mapper.over(reading.rows)))


def accounts_of(outcomes: list[RowOutcome]) -> Accounts:
    events = [outcome for outcome in outcomes if isinstance(outcome, MappedRow)]
    rejections = [outcome for outcome in outcomes if isinstance(outcome, Rejection)]
    return Accounts(
        len(events),
        len({event.row_key for event in events}),
        len(rejections),
        dict(Counter(outcome.because for outcome in outcomes if isinstance(outcome, Skipped))),
        dict(Counter(code.value for one in rejections for code in {reason.code for reason in one.reasons})),
        len({outcome.location for outcome in outcomes}),
    )


def events_in(outcomes: list[RowOutcome]) -> dict[str, dict[str, Any]]:
    """Return the payloads by their row keys."""
    return {outcome.row_key: orjson.loads(outcome.body) for outcome in outcomes if isinstance(outcome, MappedRow)}


def event_at(outcomes: list[RowOutcome], line: int) -> dict[str, Any]:
    outcome = next(outcome for outcome in outcomes if outcome.location.number == line)
    assert isinstance(outcome, MappedRow), outcome
    event: dict[str, Any] = orjson.loads(outcome.body)
    return event


def payload(title: str, starts: str, zone: str, city: tuple[str, str, str], kinds: str, **more: Any) -> dict[str, Any]:
    """The payload of a published event of the first channel; `kinds` are its classifications, `more` stands beside or instead."""
    place_id, name, country = city
    where = {"city": {"placeId": place_id, "name": name, "countryCode": country}}
    always = {"channelId": 1, "status": "published", "classifications": kinds.split(), "approxLocation": where}
    return {**always, "title": title, "startAt": starts, "timezone": zone, **more}


def reasons_in(outcomes: list[RowOutcome]) -> dict[str, list[tuple[str, ReasonCode, str, str]]]:
    """Return, by row key, the column, code, raw value and hint of each reason."""
    return {one.row_key: list(map(_shown, one.reasons)) for one in outcomes if isinstance(one, Rejection)}


def _shown(reason: Reason) -> tuple[str, ReasonCode, str, str]:
    return reason.column, reason.code, reason.found, reason.hint
