"""A name of a mapping means one column: what the commands do when a partner's file has two for it."""

from __future__ import annotations

import pytest
from unit.cli.conftest import GOOD, HEADER, MAPPING, ROWS, Decider, Desk

REPEATED = HEADER.replace("ID,", "ID,TITLE,")
BOTH = '2 columns answer to "TITLE": "TITLE" (#2, column B), "TITLE" (#3, column C)'


def with_notes(rows: tuple[str, ...]) -> list[str]:
    """The rows with a private note in a column to the left of the title."""
    return [row.replace(",", ",INTERNAL,", 1) for row in rows]


def test_a_second_column_of_a_name_stops_the_feed_before_a_row_is_read(decider: Decider) -> None:
    desk = decider.desk
    desk.source(with_notes(GOOD), REPEATED)
    run = decider.publish(code=5)
    assert (run["outcome"], BOTH in run["message"], '"#C"' in run["hint"]) == ("stopped by a brake", True, True)
    assert decider.service.events() == []
    desk.source(GOOD)
    decider.publish(code=0)
    desk.source(with_notes(GOOD), REPEATED.replace("TITLE", "Title", 1))
    assert '"Title" (#2, column B), "TITLE" (#3, column C)' in decider.publish(code=5)["message"]
    assert sorted(event["title"] for event in decider.service.events()) == ["Hamlet", "Jazz", "Othello"]


def test_every_command_that_reads_the_source_says_so(desk: Desk) -> None:
    desk.source(with_notes(ROWS), REPEATED)
    for words in (("preview", "town-hall"), ("explain", "town-hall", "1")):
        desk.run(*words).assert_told(5, BOTH)
    (found, *_) = desk.run("check", "--json", code=2).document["feeds"][0]["problems"]
    assert (found["line"], BOTH in found["message"]) == (11, True)
    desk.mapping(MAPPING.replace("from: TITLE", 'from: "TITLE#2"').replace("TITLE: ", '"TITLE#2": '))
    desk.run("check", code=0)


def test_a_run_says_which_columns_are_read_from_another_header(decider: Decider) -> None:
    aliases = "  columns: {TITLE: [Name], DAY: [Date]}\nkey: [ID]"
    decider.desk.mapping(MAPPING.replace("key: [ID]", aliases))
    for header, said in (
        (HEADER, []),
        (HEADER.replace("TITLE", "Name"), ['the column "TITLE" is now read from "Name", and was read from "TITLE"']),
        (HEADER.replace("TITLE", "Name") + ",more", []),
        (HEADER.replace("DAY", "DAY "), ['the column "TITLE" is now read from "TITLE", and was read from "Name"']),
    ):
        decider.desk.source([row + "," * header.count(",more") for row in GOOD], header)
        notices = [notice.partition(":")[0] for notice in decider.publish(code=0)["notices"]]
        assert [notice for notice in notices if "is now read from" in notice] == said


@pytest.mark.parametrize(("table", "code"), [("kind,slug,note,note", 0), ("kind,slug,Slug,note", 2), ("slug,slug,a,b", 2)])
def test_a_column_of_a_lookup_file_means_one_column(desk: Desk, table: str, code: int) -> None:
    (desk.folder / "feeds" / "genres.csv").write_text(f"{table}\nconcert,music,film,x\nplay,theatre,film,x\n", "utf-8")
    words = "{map: {concert: music, play: theatre}}"
    desk.mapping(MAPPING.replace(words, "{lookup: genres.csv, take: slug}"))
    said = desk.run("check", code=code)
    assert code == 0 or 'answer to "slug"' in said.words


def test_an_example_cannot_have_two_columns_for_a_name(desk: Desk) -> None:
    desk.mapping(MAPPING.replace('{ID: "1", TITLE: Jazz', '{ID: "1", TITLE: Jazz, Title: Other'))
    desk.run("check").assert_told(2, 'example 1: expected one column "TITLE", got 2 that answer to this name: "TITLE", "Title"')
