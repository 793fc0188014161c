"""`publish: {draft_on_warning: true}`: what has a warning is sent as a draft, under the same key."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import orjson
import pytest

from mappings.compiler.mapper import RowMapper, compile_feed
from mappings.event import Directory
from mappings.outcome import MappedRow, RowOutcome, SourceRow
from mappings.reasons import Reason, ReasonCode
from mappings.row_key import fingerprint
from mappings.spec.feed import FeedMapping

Build = Callable[..., FeedMapping]
Row = Callable[..., SourceRow]

DRAFTS = "publish: {draft_on_warning: true}\n"
EVENT = """status: published
locationName: {from: PLACE, do: [fix_mojibake], on_empty: warn}
coverImage: {image: {from: IMG, on_empty: omit}}"""
READ = Reason(ReasonCode.UNDECODABLE, "", "NOTES", "x", "save the file as UTF-8")


def mapped(outcome: RowOutcome) -> tuple[MappedRow, dict[str, Any]]:
    assert isinstance(outcome, MappedRow), outcome
    return outcome, orjson.loads(outcome.body)


@pytest.mark.parametrize(
    ("cells", "warnings", "status"),
    [
        ({"PLACE": "Mill"}, (), "published"),
        ({"PLACE": ""}, (), "draft"),
        ({"PLACE": "CafÃ©"}, (), "draft"),
        ({"PLACE": "Mill", "IMG": "no picture"}, (), "draft"),
        ({"PLACE": "Mill"}, (READ,), "draft"),
    ],
)
def test_a_row_with_a_warning_is_a_draft_under_its_own_key(
    cells: dict[str, str], warnings: tuple[Reason, ...], status: str, build: Build, row: Row
) -> None:
    one = replace(row(**cells), warnings=warnings)
    plain, sent = mapped(compile_feed(build(event=EVENT), Directory())(one))
    assert sent["status"] == "published"
    careful, event = mapped(compile_feed(build(event=EVENT, top=DRAFTS), Directory())(one))
    assert event == sent | {"status": status}
    assert (careful.row_key, careful.duplicate_digest, careful.warnings) == (
        plain.row_key,
        plain.duplicate_digest,
        plain.warnings,
    )
    assert careful.fingerprint == fingerprint(careful.body, careful.cover.url if careful.cover else "")
    assert careful.row_digest != plain.row_digest


def test_a_warning_of_a_later_row_of_one_event_drafts_the_event(build: Build, row: Row) -> None:
    group = "rows:\n  - group: {collect: [classifications]}\n"
    kinds = "status: published\nclassifications: {from: KIND, do: [{split: ','}]}"
    later = replace(row(KIND="art"), warnings=(READ,))
    mapper: RowMapper = compile_feed(build(event=kinds, top=DRAFTS + group), Directory())
    outcome, event = mapped(next(iter(mapper.over([row(KIND="music"), later]))))
    assert (event["status"], event["classifications"]) == ("draft", ["music", "art"])
    assert [reason.code for reason in outcome.warnings] == [ReasonCode.UNDECODABLE]
