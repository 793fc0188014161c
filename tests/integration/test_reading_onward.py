"""A feed from an org that says what changed, as people meet it: `run`, its notices, `--full`, the rows that stay listed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from contract.every_kind import INCREMENTAL_KINDS
from contract.feeds_of_texts import TOLD_BY_AN_ORG
from contract.source_kinds import Stand
from integration.desk import Desk, Said
from integration.service import Service

pytestmark = pytest.mark.slow


@dataclass(frozen=True)
class Org:
    """The desk of a feed whose rows are records of an org."""

    desk: Desk
    stand: Stand

    def rows(self, **titles: str) -> None:
        self.stand.put([["id", "text"], *titles.items()])

    def run(self, *words: str) -> Said:
        said = self.desk.run(*words)
        assert said.code in {0, 1}, said.words
        return said

    def rejected(self) -> list[str]:
        return [row["row_key"] for row in self.desk.rows("rejected")]


@pytest.fixture
def org(desk: Desk, service: Service, tmp_path: Path) -> Iterator[Org]:
    del service
    (desk.folder / "feeds").mkdir(exist_ok=True)
    (desk.folder / "feeds" / "town.yaml").write_text(TOLD_BY_AN_ORG, "utf-8")
    (tmp_path / "org").mkdir()
    with INCREMENTAL_KINDS[0].stand(tmp_path / "org") as stand:
        desk.env.update(stand.environment)
        yield Org(desk, stand)


def test_a_feed_is_read_from_where_it_was_and_says_when_it_begins_anew(org: Org, service: Service) -> None:
    org.rows(a="Alfa", b="Bravo", c="Charlie")
    first = org.run().run
    assert (first["read"]["new"], first["publish"]["delivered"], first["notices"]) == (3, 3, [])
    org.rows(a="Alfa", b="Bravissimo", d="")
    second = org.run().run
    assert second["read"]["gone"] == 1
    assert (second["vanished"], second["read"]["rejected"], second["read"]["drifted"]) == (1, 1, 1)
    assert second["read"]["read"] < 5
    org.rows(a="Alpha", b="Bravissimo", d="")
    third = org.run().run
    assert (third["rejected_before"] + third["read"]["rejected"], org.rejected()) == (1, ["d"])
    full = org.run("--full").run
    assert (full["notices"], full["read"]["read"], full["rejected_before"]) == (["read whole: asked for"], 3, 0)
    page = org.desk.command("runs", full["run_id"], "--json").document
    assert page["notices"] == ["read whole: asked for"]
    assert service.titles() == ["Alfa", "Bravo", "Charlie"]


def test_an_edited_mapping_is_rehearsed_and_run_over_all_rows(org: Org) -> None:
    org.rows(a="Alfa", b="Bravo")
    org.run()
    path = org.desk.folder / "feeds" / "town.yaml"
    path.write_text(TOLD_BY_AN_ORG.replace("classifications: [music]", "classifications: [theatre]"), "utf-8")
    rehearsed = org.desk.run("--dry-run").document["rehearsals"][0]
    said = org.run().run
    assert rehearsed["read"] == said["read"]
    assert said["read"]["drifted"] == 2
    assert said["notices"] == ["read whole: the mapping, the source or the service's lists are not those of the last read"]
