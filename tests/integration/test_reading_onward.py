"""A feed from an org that says what changed, as people meet it: `run`, its notices, `--full`, the rows that stay listed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from contract.every_kind import INCREMENTAL_KINDS
from contract.feeds_of_texts import TOLD_BY_AN_ORG
from integration.desk import Desk, line, lines
from integration.service import Service

pytestmark = pytest.mark.slow


@pytest.fixture
def put(desk: Desk, tmp_path: Path) -> Iterator[Callable[..., None]]:
    """Let the feed read an org; give the org these records, titles by id."""
    (desk.folder / "feeds" / "town.yaml").write_text(TOLD_BY_AN_ORG, "utf-8")
    (tmp_path / "org").mkdir()
    with INCREMENTAL_KINDS[0].stand(tmp_path / "org") as stand:
        desk.env.update(stand.environment)
        yield lambda **titles: stand.put([["id", "text"], *titles.items()])


def test_a_feed_is_read_from_where_it_was_and_says_when_it_begins_anew(
    desk: Desk, service: Service, put: Callable[..., None]
) -> None:
    put(a="Alfa", b="Bravo", c="Charlie")
    first = desk.run().run
    assert (first["read"]["new"], first["publish"]["delivered"], first["notices"]) == (3, 3, [])
    put(a="Alfa", b="Bravissimo", d="")
    second = desk.run().run
    assert second["read"]["gone"] == 1
    assert (second["vanished"], second["read"]["rejected"], second["read"]["drifted"]) == (1, 1, 1)
    assert second["read"]["read"] < 5
    put(a="Alpha", b="Bravissimo", d="")
    third = desk.run().run
    assert (third["rejected_before"] + third["read"]["rejected"], [row["row_key"] for row in desk.rows("rejected")]) == (1, ["d"])
    full = desk.run("--full").run
    assert (full["notices"], full["read"]["read"], full["rejected_before"]) == (["read whole: asked for"], 3, 0)
    page = desk.command("runs", full["run_id"], "--json").document
    assert page["notices"] == ["read whole: asked for"]
    assert service.titles() == ["Alfa", "Bravo", "Charlie"]


def test_an_edited_mapping_is_rehearsed_and_run_over_all_rows(desk: Desk, put: Callable[..., None]) -> None:
    put(a="Alfa", b="Bravo")
    desk.run()
    desk.edit("classifications: [music]", "classifications: [theatre]")
    rehearsed = desk.run("--dry-run").document["rehearsals"][0]
    said = desk.run().run
    assert rehearsed["read"] == said["read"]
    assert said["read"]["drifted"] == 2
    assert said["notices"] == ["read whole: the mapping, the source or the service's lists are not those of the last read"]


ROWS = 60


def test_an_unchanged_file_is_counted_and_its_rejected_rows_stay_listed_without_its_being_read(
    desk: Desk, service: Service
) -> None:
    desk.source([*lines(ROWS), line(ROWS, title="")])
    first = desk.run(code=0).run
    (before,) = desk.rows("rejected")
    second = desk.run(code=0).run
    (after,) = desk.rows("rejected")
    assert first["notices"] == []
    assert second["read"] == {**first["read"], "new": 0, "unchanged": ROWS}
    (notice,) = second["notices"]
    assert notice.startswith("unchanged since it was read 20")
    assert second["rejections"] == first["rejections"]
    assert after == {**before, "run_id": second["run_id"], "seen_at": after["seen_at"]}
    assert after["seen_at"] > before["seen_at"]
    whole = desk.run("--full").run
    assert (whole["notices"], whole["read"]["unchanged"]) == ([], ROWS), "a whole read is made where a person asks for it"
    desk.command("state", "verify", code=0)
    assert len(service.events()) == ROWS
