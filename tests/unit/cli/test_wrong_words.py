"""A wrong word, a missing file, two options that exclude each other: each is answered with what was wrong and what is right."""

from __future__ import annotations

import pytest
from unit.cli.conftest import Desk

FEED = "town-hall"
DAYS = ("--from", "2031-05-02", "--to")


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("preview", "feeds/twon.yaml"), 'there is no file feeds/twon.yaml hint: did you mean "feeds/town.yaml"?'),
        (("explain", "drafts/none.yaml", "1"), "there is no file drafts/none.yaml"),
        (
            ("run", FEED, "--accept", "shrnk"),
            (
                "--accept shrnk: input should be 'rejected', 'shrink', 'left_out', 'new', 'copies', 'scope' or 'keys'"
                ' hint: did you mean "shrink"?'
            ),
        ),
        (("run", FEED, "--status", "draf"), "--status draf: input should be 'draft' hint: did you mean \"draft\"?"),
        (("run", FEED, "--all"), "--all and names of feeds exclude each other"),
        (
            ("backfill", FEED, *DAYS, "2031-05-03", "--by", "evnt"),
            '--by evnt: there is no such way to tell a row\'s day hint: did you mean "event"?',
        ),
        (("backfill", FEED, *DAYS, "2031-05-01"), "hint: --from is the first day, --to the last one"),
        (("metrics", "--out", "x.prom", "--port", "0"), "--port and --out exclude each other"),
        (
            ("schema", "--documents", "nowhere"),
            "cannot be written: No such file or directory hint: choose another place for --documents",
        ),
        (("schema", "--out", "no/such/folder.json"), "cannot be written"),
        (("schema", "--document", "statsu"), "did you mean"),
        (("check", "town-hal"), 'did you mean "town-hall"?'),
        (("rows", "town-hal"), 'did you mean "town-hall"?'),
        (("rows", FEED, "--state", "delivred"), 'did you mean "delivered"?'),
        (("rows", FEED, "--csv", "no/such/folder.csv"), "cannot be written"),
        (("metrics", "--out", "no/such/folder.prom"), "cannot be written"),
        (("vocabulary", "truncat"), 'did you mean "truncate"?'),
        (("schema", "--documents", ".", "--document", "run"), "--documents writes all schemas"),
        (("sandbox", "--port", "99999"), "--port"),
        (("ui", "--port", "-1"), "--port"),
        (("demo", "--folder", "."), "is not empty, and no demo was there hint: choose a folder of its own with --folder"),
        (("demo", "--folder", "events.csv/demo"), "cannot be made: Not a directory hint: choose another place with --folder"),
    ],
    ids=lambda words: " ".join(words) if isinstance(words, tuple) else "",
)
def test_a_wrong_word_is_answered_with_what_is_right(desk: Desk, words: tuple[str, ...], told: str) -> None:
    with desk.service():
        said = desk.run(*words)
    assert said.code == 2, said.err
    assert told in " ".join(said.err.split())
    assert "Traceback" not in said.err
    assert (desk.folder / "events.csv").is_file(), "nothing of anybody's is taken away"


@pytest.mark.parametrize(
    "verb", [("ui",), ("run", "--all"), ("check",), ("feeds",), ("preview", FEED), ("rows", FEED)], ids=" ".join
)
def test_without_a_folder_of_mapping_files_the_variable_that_names_it_is_told(desk: Desk, verb: tuple[str, ...]) -> None:
    desk.monkeypatch.setenv("EVENTSYNC_FEEDS", "nowhere")
    said = desk.run(*verb)
    assert said.code == 2
    assert "nowhere hint: set EVENTSYNC_FEEDS to the folder of your mapping files" in " ".join(said.err.split())
