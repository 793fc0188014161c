"""The feeds of `make demo-sources` in a Dagster instance: a sheet and an org, read, sent once, written back."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import pytest
from lookalikes.demo import FEEDS, Places, running_places
from on_dagster.desk import Desk, checks_of, desk_in, is_stale_in, materialized, metadata_of, observed_version_of

SHEET, ORG = "demo-sheet", "demo-salesforce"


class DeskElsewhere(Desk):
    """A desk whose feeds read from the look-alikes."""

    places: Places

    @property
    def environ(self) -> dict[str, str]:
        return {**super().environ, **self.places.environ, "EVENTSYNC_FEEDS": str(FEEDS)}


@pytest.fixture
def desk(tmp_path: Path, instance: dg.DagsterInstance) -> Iterator[DeskElsewhere]:
    with desk_in(tmp_path, instance) as plain, running_places(tmp_path / "access") as places:
        made = DeskElsewhere(tmp_path, plain.base_url, instance)
        made.places = places
        yield made


def posts_of(desk: DeskElsewhere) -> int:
    return sum(one.startswith("POST /v4") for one in desk.places.google.asked)


def test_both_are_materialized_and_sent_once_and_a_sheet_that_may_not_be_written_to_is_a_notice(desk: DeskElsewhere) -> None:
    first = {feed: desk.run(feed=feed) for feed in (SHEET, ORG)}
    assert [(result.success, materialized(result)) for result in first.values()] == [(True, {"staged", "published"})] * 2
    published = [metadata_of(first[feed], "published", feed) for feed in (SHEET, ORG)]
    assert [one["delivered"].value for one in published] == [5, 9]
    assert published[0]["cells written back"].value == 14
    assert all(check.passed for result in first.values() for check in checks_of(result).values())
    sent, written = desk.posts(), posts_of(desk)
    assert (sent, written) == (14, 1)
    assert all(desk.run(feed=feed).success for feed in (SHEET, ORG))
    assert (desk.posts(), posts_of(desk)) == (sent, written)

    (book,) = desk.places.google.books.values()
    book.writers.clear()
    desk.places.sheet.put(10, 5, "Concert")
    result = desk.run(feed=SHEET)
    refused = metadata_of(result, "published", SHEET)
    assert (result.success, refused["delivered"].value) == (True, 1)
    assert "reader@lookalike" in str(refused["not written back"].value)
    assert any("sheet does not show" in notice for notice in desk.book(result.run_id, feed=SHEET).notices)


def test_an_org_which_cannot_be_probed_has_no_version_and_to_observe_it_makes_nothing_stale(desk: DeskElsewhere) -> None:
    source, staged = (dg.AssetKey([ORG, phase]) for phase in ("source", "staged"))
    desk.instance.report_runless_asset_event(dg.AssetObservation(source, tags={"dagster/data_version": "probed before"}))
    assert desk.run(feed=ORG).success
    definitions = desk.definitions()
    for _ in range(2):
        assert (observed_version_of(desk.instance, source), is_stale_in(definitions, desk.instance, staged)) == (None, False)
        job = definitions.resolve_implicit_global_asset_job_def()
        assert job.execute_in_process(instance=desk.instance, asset_selection=[source]).success


def test_a_brake_tells_the_editors_all_the_same(desk: DeskElsewhere) -> None:
    for number in range(4, 8):
        desk.places.sheet.put(number, 3, "soon")
    assert not desk.run(feed=SHEET).success
    rows = desk.places.said()
    assert [row["Status"] for row in rows][:4] == ["rejected"] * 4
    assert rows[4] == {"ID": "0105", "Status": "waits", "Problem": "Not sent yet."}
